"""What a user may have meant by an option or a key that does not exist: loaded only where one is given."""

from collections.abc import Iterable
from difflib import get_close_matches

from lightning_tfm.errors import nearest

ALIASES = {
    "training.lr_factor": "lr learning_rate lr_scale",
    "training.tokens": "batch batch_size batch_tokens bs per_device_train_batch_size",
    "training.steps": "epochs max_epochs max_steps num_steps num_train_epochs",
    "training.warmup": "warmup_steps",
    "training.eps_ls": "label_smoothing",
    "training.clip_norm": "gradient_clip_val grad_clip max_grad_norm",
    "model.P_drop": "dropout p_dropout hidden_dropout_prob",
    "model.h": "head heads n_heads num_heads nhead attention_heads num_attention_heads",
    "model.N": "layers n_layers num_layers num_hidden_layers",
    "model.d_model": "hidden_size embed_dim dim",
    "model.d_ff": "ffn_dim dim_feedforward intermediate_size",
    "evaluation.beam": "beam_size num_beams",
    "training.precision": "fp16 bf16 amp",
    "trainer.devices": "gpus num_gpus",
    "trainer.micro_tokens": "accumulate_grad_batches gradient_accumulation gradient_accumulation_steps",
    "out": "output_dir out_dir",
}
"""field -> what other tools call it"""
MANY = 20
"""options that a message still lists"""
INSTEAD = {"dry_run": "lightning-tfm plan says what would run", "resume": "fit, sweep and tune resume by themselves"}
"""option of other tools -> what to do here"""
FORMATS = ("text", "markdown", "csv", "json", "latex", "html")
VERBS = {
    "list ls studies": "status lists the studies, runs list the runs",
    "train run start": "fit trains one experiment, sweep a study",
    "eval evaluate score": "validate scores the dev set, test the test set",
    "search optimize": "tune SEARCH.yaml",
    "predict generate infer decode": "translate RUN translates lines",
    "show view": "status STUDY, table STUDY, report STUDY or dashboard",
}
"""what other tools call a command -> what to type here"""
FOREIGN = frozenset(" ".join(ALIASES.values()).split())


def suggestion(key: str, valid: Iterable[str]) -> str:
    """A clause that names what `key` may mean: a field by its own name or other tools' name for it, or one like it."""
    word, whole = _last(key), {name.lstrip("-"): name for name in valid}
    if word in FORMATS and "format" in whole:
        return f"did you mean '--format {word}'?"
    last = {_last(name): name for name in whole.values()}
    ours = next((field for field, names in ALIASES.items() if word in names.split()), "")
    close = [*get_close_matches(key.lstrip("-"), whole, 1), *get_close_matches(word, last, 1)]
    near = whole.get(ours) or last.get(word) or next((whole.get(name, last.get(name)) for name in close), None)
    if near or (word not in INSTEAD and len(whole) <= MANY):
        return f"did you mean '{near}'?" if near else nearest(key, whole.values())
    return INSTEAD.get(word, "none is like it; --help all lists them")


def nearest_verb(word: str, valid: Iterable[str]) -> str:
    """A clause that names the command a wrong word may mean."""
    return next((verb for words, verb in VERBS.items() if word in words.split()), "") or nearest(word, valid)


def _last(key: str) -> str:
    """The name of a field or option without section and dashes."""
    return key.lstrip("-").rpartition(".")[2].replace("-", "_").lower()
