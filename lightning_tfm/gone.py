"""What earlier versions had: the one place that remembers it, so that who asks for it is told what to use instead.

Files of our own (records, study.json) are read without what is gone in them: config.py:from_record.
"""

from lightning_tfm.errors import UserError

GONE = {
    "export --to=mlflow": "--to csv and --to tensorboard write what other programs read; W&B has --wandb",
    "dashboard --storage": "lightning-tfm status STUDY --storage … says what workers on other machines do",
    "draw --positions": "report STUDY --collect writes the numbers of a scheme, report/positions.json of its runs",
    "predict-cost": "lightning-tfm plan SWEEP says how long its runs take, at --rate FLOP/s or as finished runs took",
    "completions": 'eval "$(register-python-argcomplete lightning-tfm)" completes the command line in bash and zsh',
    "data pack": "tar packs a prepared text: docs/howto/cluster.md says which folders",
    "data unpack": "tar unpacks a prepared text: docs/howto/cluster.md says where",
    "data.check_script": "leave it out, or clean the text by script before it is prepared",
    "data.max_types": "leave it out: every word is counted",
    "ladder": "lightning-tfm scaling STUDY STUDY… is its name now",
    "pool": "lightning-tfm meta-analysis STUDY STUDY STUDY… is its name now",
    "slurm.nodes": "a run's devices are on one node; one run over several takes torchrun: docs/howto/cluster.md",
    "study drop": "lightning-tfm study hide STUDY ROW takes a row out of the table; it stays in every correction",
    "study rename": "a label in the sweep file's rows renames a row in every report; its name stays",
    "tune --seeds": "a trial is one run at base's seed; tune ends with a sweep that tests the best trial at new seeds",
    "trainer.packed": "leave it out: every step is padded, and a run that began packed continues from its checkpoint",
}
"""`command`, `command action`, `command --option`, `command --option=value`, `section.field` -> what to use instead"""


def refuse(*keys: str, where: str = "") -> None:
    """Raise UserError where one of `keys` is in the table; `where` it was written."""
    for key in keys:
        if key in GONE:
            raise UserError(f"{where}{': ' * bool(where)}{key} was removed: {GONE[key]}")
