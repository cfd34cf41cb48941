"""The official parts of the corpora that can be fetched: where they are, what is in them, what they must be.

Checksums are those that sacreBLEU publishes for the test sets (md5); no one publishes any for the training texts, whose
checksums are recorded at first use. Line counts of the test sets are the ones that papers count by: newstest2014
English-German has 3,003 lines in full and 2,737 in the filtered set, which is another test.
"""

from dataclasses import dataclass

from lightning_tfm.data.wmt.download import Remote

STATMT = ("https://www.statmt.org", "http://www.statmt.org", "https://data.statmt.org")
"""one server under three names; your own mirror comes first through LIGHTNING_TFM_MIRROR"""


@dataclass(frozen=True, eq=False)
class Part:
    """Parallel lines: `members` by language, of an archive or, where that is empty, fetched unchanged.

    `lines` is asserted where it is known (0: it is not).
    """

    name: str
    archive: str
    members: dict[str, str]
    lines: int = 0
    test: bool = False
    """a test set, whose layout may be SGM"""


@dataclass(frozen=True)
class Source:
    """A corpus: its archives, the parts of its splits, and the experiment file whose data section is meant for it."""

    languages: tuple[str, ...]
    remotes: tuple[Remote, ...]
    splits: dict[str, tuple[Part, ...]]
    experiment: str
    vocabulary: Part | None = None
    """of a corpus in pieces: one file, named for the first language"""

    @property
    def parts(self) -> list[Part]:
        return [part for parts in self.splits.values() for part in parts]


def _statmt(name: str, path: str, md5: str = "") -> Remote:
    return Remote(name, tuple(f"{server}/{path}" for server in STATMT), md5)


def _both(pattern: str, *languages: str) -> dict[str, str]:
    return {language: pattern.format(language) for language in languages}


EUROPARL = _statmt("training-parallel-europarl-v7.tgz", "wmt13/training-parallel-europarl-v7.tgz")
COMMONCRAWL = _statmt("training-parallel-commoncrawl.tgz", "wmt13/training-parallel-commoncrawl.tgz")
NEWS = _statmt("training-parallel-nc-v9.tgz", "wmt14/training-parallel-nc-v9.tgz")
UN = _statmt("training-parallel-un.tgz", "wmt13/training-parallel-un.tgz")
GIGA = _statmt("training-giga-fren.tar", "wmt10/training-giga-fren.tar")
DEV = _statmt("newstest2013.tgz", "wmt13/test.tgz", "48eca5d02f637af44e85186847141f67")
TEST = _statmt("newstest2014-full.tgz", "wmt14/test-full.tgz", "a8cd784e006feb32ac6f3d9ec7eb389a")
FILTERED = _statmt("newstest2014-filtered.tgz", "wmt14/test-filtered.tgz", "84c597844c1542e29c2aff23aaee4310")


def _wmt14(other: str, pair: str, filtered_lines: int, experiment: str, more: tuple[Part, ...]) -> Source:
    languages = ("en", other)

    def newstest(name: str, remote: Remote, folder: str, lines: int) -> Part:
        members = {
            "en": f"{folder}/newstest2014-{pair}-src.en.sgm",
            other: f"{folder}/newstest2014-{pair}-ref.{other}.sgm",
        }
        return Part(name, remote.name, members, lines, test=True)

    train = (
        Part("europarl-v7", EUROPARL.name, _both(f"training/europarl-v7.{other}-en.{{}}", *languages)),
        Part("commoncrawl", COMMONCRAWL.name, _both(f"commoncrawl.{other}-en.{{}}", *languages)),
        Part("news-commentary-v9", NEWS.name, _both(f"training/news-commentary-v9.{other}-en.{{}}", *languages)),
        *more,
    )
    dev = Part("newstest2013", DEV.name, _both("test/newstest2013-src.{}.sgm", *languages), 3000, test=True)
    remotes: tuple[Remote, ...] = (EUROPARL, COMMONCRAWL, NEWS, DEV, TEST, FILTERED)
    if more:
        remotes += (UN, GIGA)
    return Source(
        languages,
        remotes,
        {
            "train": train,
            "newstest2013": (dev,),
            "newstest2014": (newstest("newstest2014", TEST, "test-full", 3003),),
            "newstest2014-filtered": (newstest("newstest2014-filtered", FILTERED, "test", filtered_lines),),
        },
        experiment,
    )


EN_FR = (
    Part("un2000", UN.name, _both("un/undoc.2000.fr-en.{}", "en", "fr")),
    Part("giga-fren", GIGA.name, _both("giga-fren.release2.fixed.{}.gz", "en", "fr")),
)

MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
MULTI30K_MIRROR = "https://github.com/multi30k/dataset/raw/master/data/task1/raw"
MULTI30K_SHA256 = {
    # of commit a3d2e0d26b56f3846f66a952536ffed4e401d05a
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2016_flickr.fr.gz": "6d326e188d259fb1d04ac19eae3af956559b3a0b93d7635e56c90987c40c8b90",
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "train.fr.gz": "622e75069e9f4c577425c4f277116ce66e63a2401c0a2312d90073cb12379a3c",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "val.fr.gz": "ca3106f1a72390591d25f6c45cb4cd39dec4cd3f123e099748a3ce5256c160e9",
}
MULTI30K_SPLITS = {"train": 29000, "val": 1014, "test_2016_flickr": 1000}


def _multi30k() -> Source:
    languages = ("en", "de", "fr")
    names = {split: _both(f"{split}.{{}}.gz", *languages) for split in MULTI30K_SPLITS}
    remotes = tuple(
        Remote(name, (f"{MULTI30K}/{name}", f"{MULTI30K_MIRROR}/{name}"), sha256=MULTI30K_SHA256[name])
        for members in names.values()
        for name in members.values()
    )
    splits: dict[str, tuple[Part, ...]] = {s: (Part(s, "", names[s], lines),) for s, lines in MULTI30K_SPLITS.items()}
    return Source(languages, remotes, splits, "experiments/multi30k.yaml")


BPE_DRIVE = "0B_bZck-ksdkpM25jRUN2X2UxMm8"
BPE = Remote(
    "wmt16_en_de.tar.gz",
    (
        f"https://drive.usercontent.google.com/download?id={BPE_DRIVE}&export=download&confirm=t",
        f"https://drive.google.com/uc?export=download&id={BPE_DRIVE}",
    ),
    md5="874ab6bbfe9c21ec987ed1b9347f95ec",
)
"""what the authors of the paper trained and scored on (tensor2tensor's translate_ende_wmt_bpe32k): Moses tokens, a
joint byte-pair encoding, News Commentary v11, pairs of at most 80 tokens; md5 and numbers of lines are torchtext's"""


def _wmt16_bpe() -> Source:
    languages = ("en", "de")

    def part(split: str, name: str, lines: int) -> Part:
        return Part(split, BPE.name, _both(f"{name}.bpe.32000.{{}}", *languages), lines)

    splits: dict[str, tuple[Part, ...]] = {
        "train": (part("train", "train.tok.clean", 4_500_966),),
        "newstest2013": (part("newstest2013", "newstest2013.tok", 3000),),
        "newstest2014": (part("newstest2014", "newstest2014.tok", 3003),),
    }
    vocabulary = Part("vocabulary", BPE.name, {"en": "vocab.bpe.32000"})
    return Source(languages, (BPE,), splits, "experiments/base-bpe.yaml", vocabulary)


SOURCES: dict[str, Source] = {
    "wmt14-en-de": _wmt14("de", "deen", 2737, "experiments/base.yaml", ()),
    "wmt14-en-fr": _wmt14("fr", "fren", 3003, "experiments/base-en-fr.yaml", EN_FR),
    "multi30k": _multi30k(),
    "wmt16-en-de-bpe": _wmt16_bpe(),
}
