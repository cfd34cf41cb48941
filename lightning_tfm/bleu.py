"""Scores of translations: sacreBLEU on detokenised text, with its signature."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sacrebleu


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
