"""The heads of docs/attention.md: nine jobs counted in a trained run of Multi30k, and the page's four pictures.

`python docs/attention_heads.py RUN` prints, for each job, the head that does it best and its share of the weight, and
writes scores.svg, weights.svg, gender.svg and article.svg into the working directory.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

import lightning_tfm as lt
from lightning_tfm.model.attention import with_causal_mask
from lightning_tfm.model.attention_types import masked_softmax, scaled_scores
from lightning_tfm.report.charts.grid import grid
from lightning_tfm.report.charts.svg import standalone_svg
from lightning_tfm.results import RunResults

SOURCE, TARGET = "A woman in a red shirt is holding a ball.", "Eine Frau in einem roten Hemd hält einen Ball."
ENGLISH = "man woman boy girl child dog ball shirt hat street wall bench car table"
GERMAN = "Mann Frau Junge Mädchen Kind Hund Ball Hemd Hut Straße Wand Bank Auto Tisch"
THE, ITS = "a an the", "ein eine einen einem einer eines der die das den dem des"
DEV, TEST = "val", "test_2016_flickr"
HEAD = 2
"""the third of the decoder's first layer, which the page walks through"""


def words(tokens: list[str]) -> tuple[np.ndarray, list[str]]:
    """The number of each token's word, and the words; full stop and comma are words, too."""
    number = np.cumsum([token[0] in "▁<.," for token in tokens]) - 1
    joined = ["".join(np.array(tokens)[number == i]) for i in range(number[-1] + 1)]
    return number, [word.strip("▁") for word in joined]


def shares(run: RunResults, name: str, most: int) -> dict[str, list[np.ndarray]]:
    """job -> the weight that each head gives it, [example][head], in the first `most` sentences of a split.

    A noun counts where both sides have it once and the German one follows an article.
    """
    split, tokenizer = run.trained.prepared.split(name), run.trained.prepared.tokenizer
    found: dict[str, list[np.ndarray]] = defaultdict(list)
    for i in range(min(most, len(split))):
        texts = [tokenizer.decode(side(i).tolist()) for side in (split.source, split.target)]
        if set(ENGLISH.split()).isdisjoint(re.findall(r"\w+", texts[0])):
            continue
        weights = run.attention(*texts)
        cross, own, encoder = (np.concatenate(weights[kind]) for kind in ("cross", "decoder", "encoder"))
        found["decoder: the token before"].append(np.diagonal(own, -1, 1, 2).mean(1))
        found["encoder: the token before"].append(np.diagonal(encoder, -1, 1, 2).mean(1))
        found["encoder: the next token"].append(np.diagonal(encoder, 1, 1, 2).mean(1))
        (key, ours), (query, theirs) = words(weights["source"]), words(weights["target_in"])
        for noun, its in zip(ENGLISH.split(), GERMAN.split(), strict=True):
            once = ours.count(noun) == theirs.count(its) == 1
            if not once or theirs[theirs.index(its) - 1].lower() not in ITS.split():
                continue
            s, t = ours.index(noun), theirs.index(its)
            article, first = (np.flatnonzero(query == word)[0] - 1 for word in (t - 1, t))  # they predict these words
            last, after = np.flatnonzero(key == s)[-1], np.flatnonzero(query == t)[-1]
            found["read the noun's gender"].append(cross[:, article, key == s].sum(1))
            found["translate the noun"].append(cross[:, first, key == s].sum(1))
            found["look back at the article"].append(own[:, after, query == t - 1].sum(1))
            if ours[s - 1].lower() in THE.split():
                found["copy the article"].append(cross[:, article, key == s - 1].sum(1))
                found["encoder: noun to article"].append(encoder[:, last, key == s - 1].sum(1))
                found["encoder: article to noun"].append(encoder[:, np.argmax(key == s - 1), key == s].sum(1))
    return found


def count(run: RunResults) -> None:
    """Choose the head of each job on the dev set, and count it on the test set."""
    dev, test = shares(run, DEV, 400), shares(run, TEST, 1000)
    for job in dev:
        mean, again = np.mean(dev[job], 0), np.mean(test[job], 0)
        best = mean.argmax()
        print(f"{job:26} layer {best // 8 + 1}, head {best % 8 + 1}: {mean[best]:.2f} of {len(dev[job])},", end=" ")
        print(f"test {again[best]:.2f} of {len(test[job])}, all heads {again.mean():.2f}")


def draw(run: RunResults) -> None:
    """Scores and weights of the head that the page walks through, and two maps of cross-attention."""
    layer, inputs = run.model.decoder[0].self_attention, []
    hook = layer.register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    found = run.attention(SOURCE, TARGET)
    hook.remove()
    keys, queries = ([token.strip("▁") for token in found[side]] for side in ("source", "target_in"))
    with torch.no_grad():
        q, k, _ = layer.heads(inputs[0], 0)
        scores = scaled_scores(q, k)
        weights = masked_softmax(scores, with_causal_mask(None, True, len(queries), len(queries), q.device))
    predicted = [*queries[1:], "</s>"]
    shown = {
        "scores": ("Scores, decoder, layer 1, head 3", scores[0, HEAD], queries, queries),
        "weights": ("Weights, decoder, layer 1, head 3", weights[0, HEAD], queries, queries),
        "gender": ("Cross-attention, layer 3, head 3", found["cross"][2][2], predicted, keys),
        "article": ("Cross-attention, layer 3, head 7", found["cross"][2][6], predicted, keys),
    }
    for name, (title, matrix, down, across) in shown.items():
        picture = grid(title, matrix.tolist(), dict(enumerate(down)), dict(enumerate(across)), ("", "key"))
        Path(f"{name}.svg").write_text(standalone_svg(picture))


if __name__ == "__main__":
    trained = lt.load_run(sys.argv[1])
    count(trained)
    draw(trained)
