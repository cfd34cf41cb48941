"""Mistakes that are known before data are prepared or anything is trained. All raise UserError naming the remedy."""

import os
from importlib.util import find_spec

from lightning_tfm.config import Data, Evaluation, Experiment, Hardware
from lightning_tfm.config_validation import check_ranges
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.metrics import METRICS
from lightning_tfm.model.size import count_parameters
from lightning_tfm.registry import KINDS
from lightning_tfm.study.user_classes import own_classes, user_classes

TOKENIZERS = tuple("none zh 13a intl char ja-mecab ko-mecab spm flores101 flores200 spBLEU-1K".split())
"""sacreBLEU's, as text: importing it takes a while (tests/test_mistakes.py compares)"""
NEED = {"ja-mecab": ("MeCab", "ja"), "ko-mecab": ("mecab_ko", "ko")}
"""tokenizer -> module that it needs, and the extra of sacrebleu that brings it"""
NOTHING = {
    "fit": "which experiment? lightning-tfm {verb} --config experiments/miniature.yaml takes minutes on a CPU; others "
    "are in experiments/, or in your own file",
    "data": "which corpus? lightning-tfm data prepare wmt14-en-de, or one of an experiment: --config experiments/"
    "miniature.yaml",
}
"""verb -> what to say if nothing is given"""
NOTHING |= dict.fromkeys(
    ("validate", "test", "translate", "export"),
    "which run? lightning-tfm {verb} RUN, the start of its name or its folder (lightning-tfm runs list), or --config "
    "and the options that it was trained with",
)


def check_hardware(hardware: Hardware) -> None:
    """Impossible counts and intervals, and an environment that is torchrun's in part."""
    check_ranges(hardware, "trainer")
    if os.environ.get("RANK", "0") != "0" and "TORCHELASTIC_RUN_ID" not in os.environ:
        raise UserError(
            f"the environment holds RANK={os.environ['RANK']}, as a rank that torchrun started, and this process is "
            "none: unset RANK"
        )
    lacking = [name for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE") if name not in os.environ]
    if "TORCHELASTIC_RUN_ID" in os.environ and lacking:
        raise UserError(
            f"the environment holds TORCHELASTIC_RUN_ID, as under torchrun, and lacks {', '.join(lacking)}: unset it"
        )


def check_one_machine(hardware: Hardware) -> None:
    """Several machines where torchrun has started none."""
    if hardware.num_nodes > 1:
        raise UserError(
            f"trainer.num_nodes={hardware.num_nodes}: one run over several machines takes torchrun, which says how "
            "many they are: docs/howto/cluster.md; leave the option out"
        )


def check_not_defaults(experiment: Experiment, verb: str) -> None:
    """Nothing but the defaults, which do not train: the paper's 37,000 pieces on the built-in corpus."""
    if experiment.data == Data():
        raise UserError(NOTHING.get(verb, NOTHING["fit"]).format(verb=verb))


def check_scoring(evaluation: Evaluation) -> None:
    """A metric that does not exist, a BLEU tokenizer that sacreBLEU does not have, or one whose package is missing."""
    METRICS.named(evaluation.metrics)
    tokenize = evaluation.bleu_tokenize
    if tokenize not in TOKENIZERS:
        raise UserError(
            f"evaluation.bleu_tokenize={tokenize!r} is not a sacreBLEU tokenizer: {nearest(tokenize, TOKENIZERS)}"
        )
    module, extra = NEED.get(tokenize, ("", ""))
    if module and find_spec(module) is None:
        raise UserError(f"evaluation.bleu_tokenize={tokenize!r} needs: pip install 'sacrebleu[{extra}]'")


def check_trainable(experiment: Experiment, row: str) -> None:
    """What matters only to training: a schedule that never peaks, a text both trained and scored on, an incomplete
    user-defined class.

    `experiment` at the paper's scale; the steps that count are the miniature's.
    """
    check_peak(experiment.training.warmup, experiment, row)
    data = experiment.data
    for key, split in (("dev", data.dev), ("test", data.test)):
        if split in data.train.split("+"):
            raise UserError(f"{row}: data.{key}={split} is trained on (data.train={data.train}): name another split")
    if data.corpus == "files" and data.source == data.target:
        raise UserError(f"{row}: data.source and data.target are both '{data.source}', one file for both sides")
    check_classes(experiment)
    check_weights(experiment, row)


def check_peak(warmup: int, experiment: Experiment, row: str) -> None:
    """A warm-up that is longer than the run."""
    steps = experiment.scaled(row).training.steps
    if warmup > steps:
        scale = experiment.miniature.steps
        how = f" (training.steps={experiment.training.steps} / miniature.steps={scale})" if scale > 1 else ""
        raise UserError(
            f"{row}: training.warmup={warmup} is longer than the run of {steps} steps{how}: the learning rate would "
            f"never reach its peak; give --training.warmup {steps} or less (a miniature does not divide it), or more "
            "steps"
        )


def check_weights(experiment: Experiment, row: str) -> None:
    """Weights and gradients that this machine cannot hold, where parameters can be counted."""
    exact = experiment.scaled(row)
    try:
        count = count_parameters(exact.model, exact.data.vocab_size)["total"]
    except UserError:  # a user-defined class
        return
    takes, there = 8 * count / 2**30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if takes > there:
        raise UserError(
            f"{row}: a model of {count:,} parameters takes {takes:,.0f} GiB for its weights and gradients; this "
            f"machine has {there:,.0f} GiB of memory"
        )


def check_classes(experiment: Experiment) -> None:
    """A user-defined class that derives from none of ours, or lacks a method; its module is imported."""
    user_classes(experiment)
    for key, path in own_classes(experiment).items():
        kind = KINDS[key]
        lacking = sorted(getattr(kind.find(path, ""), "__abstractmethods__", ()))
        if lacking:
            methods = ", ".join(f"{name}()" for name in lacking)
            raise UserError(
                f"{key}='{path}' lacks {methods}: define it with the arguments that it has in {kind.bases[0]}"
            )
