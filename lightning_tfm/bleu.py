"""Scores of translations: sacreBLEU on detokenised text, with its signature; BLEU as the paper measured it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

import sacrebleu

from lightning_tfm.errors import UserError

HYPHEN = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True)
class Score:
    """A corpus score with all that is needed to compare it."""

    value: float
    signature: str


def bleu(hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", smooth: str = "exp") -> Score:
    """Corpus BLEU (Papineni et al. 2002; Post 2018), 0 to 100, one reference, cased."""
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses for {len(references)} references")
    metric = sacrebleu.BLEU(tokenize=tokenize, smooth_method=smooth, force=smooth == "none")
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(value, str(metric.get_signature()))


def text_size(line: str) -> tuple[int, int]:
    """(words, characters) of a raw line: what white space separates, and Unicode code points without the line's end."""
    return len(line.split()), len(line)


def bleu_tokenizer(tokenize: str) -> Callable[[str], str]:
    """What sacreBLEU does to a line before it counts n-grams; words are then separated by spaces."""
    return sacrebleu.BLEU(tokenize=tokenize)._preprocess_segment


def paper_tokens(lines: Sequence[str], language: str) -> list[str]:
    """Lines as the authors' script get_ende_bleu.sh counts them: Moses tokens, and hyphens within words split off.

    `(\\S)-(\\S)` becomes `$1 ##AT##-##AT## $2`, matches not overlapping: of a-b-c only the first hyphen is split.
    `language` is "" for lines that are Moses tokens already. Raises UserError where sacremoses is not installed.
    """
    if not language:
        return [HYPHEN.sub(r"\1 ##AT##-##AT## \2", line) for line in lines]
    try:
        from sacremoses import MosesTokenizer
    except ImportError as error:
        raise UserError("the paper's own measure needs sacremoses: pip install 'lightning_tfm[paper-bleu]'") from error
    moses = MosesTokenizer(lang=language)
    return [HYPHEN.sub(r"\1 ##AT##-##AT## \2", moses.tokenize(line, return_str=True)) for line in lines]


def paper_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> Score:
    """BLEU as the paper measured it: `paper_tokens` and the arithmetic of Moses's multi-bleu.perl, 0 to 100, cased.

    exp(min(0, 1 - r/c) + mean of log p_n, n = 1 … 4), no smoothing: 0 where one of the precisions is. Not comparable
    with sacreBLEU: on newstest2014 English-German about 1.5 higher, on newstest2013 about 0.3. sacremoses (its version
    is in the signature) and today's tokenizer.perl differ on abbreviations, 69.27 against 69.20 on one text: a
    difference of 0.1 to a published figure is none.
    """
    hyp, ref = paper_tokens(hypotheses, language), paper_tokens(references, language)
    value = bleu(hyp, ref, "none", smooth="none").value
    moses = f"moses:{language}" if language else "moses:ready"
    by = f"|sacremoses:{version('sacremoses')}" if language else ""
    return Score(value, f"{moses}|hyphens:split|multi-bleu|case:mixed{by}")
