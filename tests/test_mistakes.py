"""Mistakes that can be known beforehand: exit code 2, the remedy in words, nothing written, nothing heavy imported.

A new verb, option or field adds its lines to TABLE.
"""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
import yaml

from lightning_tfm.cli.main import VERBS, main
from lightning_tfm.config import Evaluation, Experiment, override
from lightning_tfm.errors import UserError
from lightning_tfm.queue import devices
from lightning_tfm.runs.outcome import guarded
from lightning_tfm.study import preflight
from lightning_tfm.study.preflight import TOKENIZERS, check_trainable
from lightning_tfm.study.sweeps import read_search

ROOT = Path(__file__).parents[1]
FIT = "fit --config e.yaml"
TABLE3 = "sweep sweeps/table3.yaml"
SEARCH = "tune sweeps/search.yaml"
MINIATURE = "fit --config experiments/miniature.yaml"
OWN = "fit --model.positions mistaken"
GPU = "--trainer.accelerator gpu"
SWEEP = "sweep e.yaml"
ROWS = "mine: {group: X, change: {model.h: 1}}"
GRID = "method: grid\nparameters: {row: {values: [base]}}"
ARGS = '[lightning-tfm, fit, "${args}"]'
TABLE = [
    # (verb and arguments, content of e.yaml beside it or "", exit code, words that the message holds)
    # --- files ---
    (FIT, "model: {hh: 4}", 2, "e.yaml:1: unknown key 'model.hh' (value 4): did you mean 'h'?"),
    (FIT, "modle: {h: 4}", 2, "e.yaml:1: unknown key 'modle' (value {'h': 4}): did you mean 'model'?"),
    (FIT, "model:\n  N: 2\n  h: eight", 2, "e.yaml:3: model.h='eight': expected a whole number"),
    (FIT, "model: 3", 2, "e.yaml:1: model=3: expected keys and values"),
    (FIT, "model: {norm: prae}", 2, "did you mean 'pre'?"),
    (FIT, "model: {h: 4, h: 8}", 2, "e.yaml:1: 'h' appears twice"),
    (FIT, "model: {h: 4", 2, "e.yaml:1: not YAML"),
    (FIT, "seed: one", 2, "e.yaml:1: seed='one': expected a whole number"),
    (FIT, "rows: mine.yaml", 2, "expected a list of files"),
    (FIT, "training: {steps: 60}\nminiature: {steps: 50}", 2, "to train 60, type 3000, which is at the paper's scale"),
    ("list", "", 2, "unknown command 'list': status lists the studies, runs list the runs"),
    ("table mine --latex --out r", "", 2, "option '--latex' on the command line: did you mean '--format latex'?"),
    ("sweep bad.yaml", "", 2, "no such file: bad.yaml"),
    ("sweep bad.yaml", "", 2, "those that ship are in experiments and sweeps"),
    ("sweep tabel3.yaml", "", 2, "did you mean 'sweeps/table3.yaml'?"),
    # --- what YAML 1.1 and 1.2 read differently ---
    (FIT, "model: {N: 1:30}", 2, "e.yaml:1: 1:30 means different things to YAML 1.1 and 1.2: write 90, or '1:30' in"),
    (FIT, "model: {N: 010}", 2, "e.yaml:1: 010 means different things to YAML 1.1 and 1.2: write 10 (or 8, if octal"),
    (FIT, "model: {N: 0o10}", 2, "write 8, or '0o10' in quotes for text"),
    (FIT, "model: {N: -08}", 2, "write -8, or '-08' in quotes for text"),
    (FIT, "training: {lr_factor: 1:30.5}", 2, "write 90.5, or '1:30.5' in quotes"),
    (FIT, "training:\n  weights: Yes", 2, "e.yaml:2: Yes means different things to YAML 1.1 and 1.2: write true"),
    (FIT, "rows: [off]", 2, "write false, or 'off' in quotes for text"),
    (FIT, "miniature: {width: 1_001}", 2, "not divisible by miniature.width=1001"),
    ("fit --model.N 1:30", "", 2, "model.N='1:30': expected a whole number"),
    (FIT, "miniature: {width: 7}", 2, "model.d_model=512 is not divisible by miniature.width=7"),
    (FIT, "model: {P_drop: 1.5}", 2, "model.P_drop=1.5: must be in [0, 1)"),
    (FIT, "model: {stack: decoder}", 2, "did you mean 'encoder_decoder'?"),
    (FIT, "model: {stack: prefix, layer: gru}", 2, "model.stack=prefix needs full self-attention"),
    (FIT, "model: {stack: causal, target_spaces: 2}", 2, "model.stack=causal has no encoder"),
    (
        FIT,
        "model: {stack: causal, attention: gated, attention_where: cross}",
        2,
        "model.stack=causal has no cross-attention",
    ),
    (FIT, "model: {attention: mean, positions: alibi}", 2, "positions=alibi acts on queries and keys, which model."),
    (FIT, "model: {positions: learnd}", 2, "did you mean 'learned'"),
    (FIT, "data: {corpus: files}", 2, "needs data.folder"),
    (
        FIT,
        "data: {corpus: lines}\nmodel: {stack: causal}",
        2,
        "data.corpus=lines needs data.folder, the folder of the text",
    ),
    (
        FIT,
        "data: {corpus: lines, folder: text}",
        2,
        "has no source, so there is nothing to encode: set model.stack=causal",
    ),
    (FIT, "data: {corpus: builtin-lines}\nmodel: {stack: prefix}", 2, "set model.stack=causal (it is prefix)"),
    (
        FIT,
        "data: {corpus: builtin-lines}\nmodel: {stack: causal, tie: none}",
        2,
        "model.tie=none gives the source's tokens",
    ),
    (
        FIT,
        "data: {corpus: builtin-lines, max_ratio: 2}\nmodel: {stack: causal}",
        2,
        "data.max_ratio compares the two sides",
    ),
    (
        FIT,
        "data: {corpus: builtin-lines}\nmodel: {stack: causal}\nevaluation: {metrics: chrf}",
        2,
        "evaluation.metrics=chrf scores translations: data.corpus=builtin-lines has no source, remove it",
    ),
    ("data prepare line", "", 2, "did you mean 'lines'"),
    (FIT, "trainer: {log_every: 0}", 2, "trainer.log_every=0: must be at least 1"),
    (FIT, "data: {long: train}", 2, "data.long=train is trained on (data.train=train): name a split that is not"),
    (f"{MINIATURE} --data.dev train", "", 2, "data.dev=train is trained on (data.train=train): name another split"),
    (f"{TABLE3} --data.train train+test", "", 2, "data.test=test is trained on (data.train=train+test)"),
    (FIT, "data: {long_from: 32}", 2, "data.long_from=32 is for data.long, the split that is scored by length"),
    (FIT, "data: {long: val, long_from: -1}", 2, "data.long_from=-1: must not be negative"),
    # --- arguments ---
    ("fti", "", 2, "unknown command 'fti': did you mean 'fit'?"),
    ("fit --model.hh 4", "", 2, "option '--model.hh' (value '4') on the command line: did you mean '--model.h'?"),
    ("fit --model.h abc", "", 2, "command line: model.h='abc': expected a whole number"),
    ("fit --model.h=4.5", "", 2, "command line: model.h=4.5: expected a whole number"),
    ("fit --model.h", "", 2, "--model.h needs a value"),
    ("fit --mod.h 3", "", 2, "unknown option '--mod.h'"),
    ("fit --lr 0.1", "", 2, "option '--lr' (value '0.1') on the command line: did you mean '--training.lr_factor'?"),
    ("fit --dropout=0", "", 2, "did you mean '--model.P_drop'?"),
    ("fit --model.batch-size 64", "", 2, "did you mean '--training.tokens'?"),
    ("fit --d_model 64", "", 2, "did you mean '--model.d_model'?"),
    ("fit --beam 8", "", 2, "did you mean '--evaluation.beam'?"),
    (f"{TABLE3} --bf16", "", 2, "did you mean '--training.precision'?"),
    (f"{TABLE3} --output_dir here", "", 2, "did you mean '--out'?"),
    (f"{TABLE3} --no-report", "", 2, "'--no-report' on the command line: none is like it; --help all"),
    (f"{TABLE3} --dry_run", "", 2, "on the command line: lightning-tfm plan says what would run"),
    ("fit --resume", "", 2, "on the command line: fit, sweep and tune resume by themselves"),
    (FIT, "model: {heads: 4}", 2, "e.yaml:1: unknown key 'model.heads' (value 4): did you mean 'model.h'?"),
    (FIT, "epochs: 4", 2, "e.yaml:1: unknown key 'epochs' (value 4): did you mean 'training.steps'?"),
    ("fit --row A-h3", "", 2, "no row 'A-h3': near it: A-h32, A-h4, A-h1, A-h16"),
    ("fit --help modle", "", 2, "fit --help modle: did you mean 'model'?"),
    ("fit --config experiments/bas.yaml", "", 2, "did you mean 'experiments/base.yaml'?"),
    ("fit --config", "", 2, "--config needs a value"),
    ("fit --row A-h2", "", 2, "no row 'A-h2'"),
    ("fit stray", "", 2, "stray"),
    ("sweep sweeps/table.yaml", "", 2, "did you mean 'sweeps/table3.yaml'?"),
    (f"{TABLE3} --seeds one", "", 2, "--seeds=one: expected numbers"),
    (f"{TABLE3} --row base", "", 2, "for one row use fit"),
    (f"{TABLE3} --miniature.width 3", "", 2, "row 'base': model.d_model=512 is not divisible"),
    ("table --params --vocab 0", "", 2, "--vocab=0"),
    ("table --params --vocab many", "", 2, "command line: --vocab='many': expected a whole number"),
    ("table --parms", "", 2, "did you mean '--params'?"),
    ("table --format htlm", "", 2, "command line: --format='htlm': valid: csv, json, latex, markdown, text"),
    ("table --format md", "", 2, "command line: --format='md': it is called markdown: --format markdown"),
    ("report --format tex", "", 2, "command line: --format='tex': it is called latex: --format latex"),
    ("compare a b --format tex", "", 2, "--format='tex': it is called latex"),
    ("report a --caption Mine", "", 2, "--caption: belongs to --format latex, not to --format html"),
    ("table a --format csv --no-paper", "", 2, "--no-paper: belongs to --format latex, not to --format csv"),
    ("report a --format latex --tests q", "", 2, "--tests='q'"),
    ("report --format htlm", "", 2, "command line: --format='htlm': did you mean 'html'?"),
    ("work mine --slurm.jobs x", "", 2, "command line: slurm.jobs='x': expected a whole number"),
    ("status --watch", "", 2, "--watch needs a study: lightning-tfm status STUDY --watch"),
    ("work", "", 2, "command line: the following arguments are required: study"),
    ("runs lst", "", 2, "did you mean 'list'?"),
    ("runs remove", "", 2, "needs a run"),
    # --- scoring ---
    ("fit --evaluation.bleu_tokenize 13b", "", 2, "is not a sacreBLEU tokenizer: did you mean '13a'?"),
    ("fit --data.corpus treebank", "", 2, "data.corpus=treebank needs data.folder, the folder of the trees"),
    ("fit --evaluation.metrics f2", "", 2, "metric 'f2': did you mean 'f1'? Or give the path of a class, module:Class"),
    ("fit --evaluation.metrics exact+bleu", "", 2, "metric 'bleu' is in every score: remove it"),
    ("fit --evaluation.metrics exact+exact", "", 2, "metrics 'exact+exact': 2 columns would be labelled 'exact'"),
    ("fit --evaluation.metrics no_such:Metric", "", 2, "metric 'no_such:Metric': cannot import it"),
    ("fit --evaluation.metrics collections:Counter", "", 2, "must derive from Summed (lightning_tfm.corpus_metrics)"),
    (f"{TABLE3} --evaluation.bleu_tokenize moses", "", 2, "valid: 13a, char, flores101"),
    (f"{SEARCH} --evaluation.bleu_tokenize 13b", "", 2, "did you mean '13a'?"),
    ("test a1b2 --evaluation.bleu_tokenize 13b", "", 2, "did you mean '13a'?"),
    ("translate a1b2 --evaluation.bleu_tokenize 13b", "", 2, "did you mean '13a'?"),
    # --- schedules ---
    (f"{MINIATURE} --training.warmup 2001", "", 2, "run of 2000 steps (training.steps=100000 / miniature.steps=50)"),
    (f"{MINIATURE} --training.warmup 2001", "", 2, "give --training.warmup 2000 or less"),
    (
        "fit --training.steps 3999",
        "",
        2,
        "training.warmup=4000 is longer than the run of 3999 steps: the learning rate",
    ),
    (f"{TABLE3} --miniature.steps 1000", "", 2, "row 'base': training.warmup=300 is longer than the run of 100 steps"),
    (f"plan {TABLE3[6:]} --miniature.steps 1000", "", 2, "training.warmup=300 is longer than the run of 100 steps"),
    (f"{SEARCH} --miniature.steps 1000", "", 2, "training.warmup=300 is longer than the run of 100 steps"),
    (f"{SEARCH} --miniature.steps 2000 --training.warmup 9", "", 2, "every trial: training.warmup=100 is longer"),
    # --- counts and intervals ---
    ("fit --training.steps 0", "", 2, "training.steps=0: must be at least 1"),
    ("fit --training.steps -5", "", 2, "training.steps=-5: must be at least 1"),
    ("fit --miniature.steps 0", "", 2, "miniature.steps=0: must be at least 1"),
    ("fit --miniature.width -8", "", 2, "miniature.width=-8: must be at least 1"),
    ("fit --training.warmup 0", "", 2, "training.warmup=0: must be above 0"),
    ("fit --trainer.log_every 0", "", 2, "trainer.log_every=0: must be at least 1"),
    (f"{TABLE3} --trainer.log_every -1", "", 2, "trainer.log_every=-1: must be at least 1"),
    ("fit --trainer.validate_every -1", "", 2, "must be at least 0 (0 leaves it to the program)"),
    ("fit --trainer.checkpoint_every -9", "", 2, "trainer.checkpoint_every=-9: must be at least 0"),
    ("fit --trainer.devices 0", "", 2, "trainer.devices=0: must be at least 1"),
    (f"{SEARCH} --trainer.num_nodes 0", "", 2, "trainer.num_nodes=0: must be at least 1"),
    ("translate a1b2 --trainer.devices 0", "", 2, "trainer.devices=0: must be at least 1"),
    ("work mine --trainer.threads -1", "", 2, "trainer.threads=-1: must be at least 0"),
    ("fit --trainer.threads 9999", "", 2, "trainer.threads=9999: this machine has"),
    ("work mine --trainer.threads 9999", "", 2, "threads beyond them only wait for each other; give at most"),
    ("work mine --workers 9999", "", 2, "--workers=9999: this machine has"),
    ("fit --trainer.devices 9999 --trainer.accelerator cpu", "", 2, "so many processes only take turns"),
    ("work mine --workers -1", "", 2, "--workers=-1: must not be negative"),
    (f"{TABLE3} --launcher slurm --slurm.jobs 0", "", 2, "--slurm.jobs=0: must be at least 1"),
    (f"{TABLE3} --launcher slurm --slurm.minutes -1", "", 2, "--slurm.minutes=-1: must be at least 1"),
    (f"{TABLE3} --runs-per-device -1", "", 2, "--runs-per-device=-1: must not be negative"),
    (f"{TABLE3} --only A-h2", "", 2, "sweeps/table3.yaml has no row 'A-h2': near it: A-h32, A-h4, A-h1, A-h16"),
    ("plan sweeps/norm.yaml --only base", "", 2, "it varies fields and names no rows"),
    ("plan sweeps/search.yaml --only base", "", 2, "sweeps/search.yaml is a search and has no rows"),
    (f"{SEARCH} --trials -1", "", 2, "--trials=-1: must be above 0"),
    # --- an accelerator that is not there ---
    (
        f"fit {GPU}",
        "",
        2,
        "trainer.accelerator=gpu needs a GPU, but this machine has none: give --trainer.accelerator cpu",
    ),
    (f"{TABLE3} {GPU}", "", 2, "this machine has none"),
    (f"{SEARCH} {GPU}", "", 2, "this machine has none"),
    (f"work mine {GPU}", "", 2, "this machine has none"),
    (f"{TABLE3} --trainer.products mkl", "", 2, "trainer.products='mkl': valid: onednn, torch"),
    (f"{MINIATURE} --trainer.products onednn --training.precision bfloat16", "", 2, "onednn multiplies in float32"),
    (f"{TABLE3} --trainer.products onednn --training.precision float64", "", 2, "training.precision is float64"),
    (f"{TABLE3} --trainer.products onednn --trainer.compile true", "", 2, "a compiler chooses by itself"),
    (f"{TABLE3} --training.precision tfloat32", "", 2, "tfloat32 needs an NVIDIA GPU of compute capability 8.0"),
    (f"{SEARCH} --training.precision tfloat32", "", 2, "this machine has none: use float32"),
    # --- nothing asked for ---
    ("fit", "", 2, "which experiment? lightning-tfm fit --config experiments/miniature.yaml takes minutes"),
    ("fit --seed 3 --training.steps 9000", "", 2, "which experiment?"),
    ("test", "", 2, "which run? lightning-tfm test RUN"),
    ("validate", "", 2, "which run? lightning-tfm validate RUN"),
    ("validate table3 --add chfr", "", 2, "metric 'chfr': did you mean 'chrf'?"),
    ("translate", "", 2, "which run? lightning-tfm translate RUN"),
    ("export", "", 2, "which run? lightning-tfm export RUN"),
    ("export two --to csv --storage x.log", "", 2, "--storage goes with --live"),
    ("data show", "", 2, "which corpus? lightning-tfm data prepare wmt14-en-de"),
    ("data prepare", "", 2, "which corpus?"),
    ("data", "", 2, "the following arguments are required: action"),
    ("sweep", "", 2, "the following arguments are required: sweep"),
    ("tune", "", 2, "the following arguments are required: sweep"),
    ("plan", "", 2, "the following arguments are required: sweep"),
    ("resume", "", 2, "the following arguments are required: study"),
    ("compare", "", 2, "the following arguments are required: studies"),
    ("judge", "", 2, "the following arguments are required: scores"),
    ("judge none.csv --metric acc:higher", "", 2, "none.csv: there is no such file"),
    ("judge none.csv --metric acc", "", 2, "--metric acc: say which values are better"),
    ("judge a.csv --metric acc:higher --looks 5,8", "", 2, "--looks: goes with --gate"),
    ("judge a.csv --metric acc:higher --gate x --candidates 5", "", 2, "--candidates: goes with --family"),
    ("judge a.csv --metric acc:higher --gate x --items i.csv", "", 2, "--gate: not together with --items"),
    ("judge a.csv --metric acc:higher --target 3 --published p.csv", "", 2, "--target: not together with --published"),
    ("judge a.csv --metric acc:higher --target nan", "", 2, "--target='nan': expected a number"),
    ("judge a.csv --metric acc:higher --best acc", "", 2, "of a folder of logs; a.csv is none"),
    ("judge a.csv --metric acc:higher --metric acc:lower", "", 2, "--metric acc: is there twice"),
    ("judge a.csv --metric a:higher --gate x --family f --candidates 0", "", 2, "--candidates=0: from 1 to 100,000"),
    ("wandb", "", 2, "the following arguments are required: action, study"),
    ("records pack", "", 2, "the following arguments are required: names"),
    ("runs", "", 2, "the following arguments are required: action"),
    ("runs gc --json", "", 2, "--json: belongs to runs list and query, not to runs gc"),
    ("runs gc --force", "", 2, "--force: belongs to runs remove, not to runs gc"),
    ("runs list --yes", "", 2, "--yes: belongs to runs gc, not to runs list"),
    ("runs list --storage x", "", 2, "--storage: belongs to runs retry, not to runs list"),
    # --- files of another kind ---
    (SWEEP, ROWS, 2, "e.yaml: not a sweep file, but a file of rows: give it with --rows"),
    (SWEEP, "model: {h: 4}", 2, "e.yaml: not a sweep file, but an experiment file: give it with --config"),
    ("tune e.yaml", ROWS, 2, "e.yaml: not a sweep file, but a file of rows"),
    ("tune e.yaml", "sampler: tpe", 2, "but NAME.study.yaml, which is read by itself"),
    ("plan e.yaml", "training: {steps: 9}", 2, "e.yaml: not a sweep file, but an experiment file"),
    (FIT, "method: grid\nparameters: {}", 2, "e.yaml: not an experiment, but a sweep file: lightning-tfm sweep FILE"),
    (FIT, ROWS, 2, "e.yaml: not an experiment, but a file of rows: give it with --rows"),
    (FIT, "trials: 9\npruner: {type: asha}", 2, "e.yaml: not an experiment, but NAME.study.yaml"),
    (FIT, "base: {}\nfingerprints: {}", 2, "but the definition of a study: lightning-tfm resume NAME"),
    (FIT, "training_hash: abc", 2, "e.yaml: not an experiment, but the record of a run"),
    ("fit --rows e.yaml", "model: {h: 4}", 2, "e.yaml: not a file of rows, but an experiment file"),
    ("fit --rows e.yaml", "command: []", 2, "e.yaml: not a file of rows, but a sweep file"),
    ("sweep experiments/table3.yaml", "", 2, "table3.yaml: not a sweep file, but a file of rows"),
    ("sweep experiments/miniature.yaml", "", 2, "miniature.yaml: not a sweep file, but an experiment file"),
    ("fit --config sweeps/table3.yaml", "", 2, "table3.yaml: not an experiment, but a sweep file"),
    ("fit --config experiments/table3.yaml", "", 2, "table3.yaml: not an experiment, but a file of rows"),
    ("tune sweeps/table3.yaml", "", 2, "it names rows, so it is a table, not a search"),
    # --- rows ---
    ("fit --rows e.yaml", "X: {group: a}", 2, "e.yaml:1: row 'X': the key 'change' is missing"),
    ("fit --rows e.yaml", "X: {group: a, change: {}, PLP: 3}", 2, "unknown key 'PLP' (value 3): did you mean 'PPL'?"),
    ("fit --rows e.yaml", "X: {group: a, change: {model.hh: 3}}", 2, "did you mean 'model.h'?"),
    ("fit --rows e.yaml", "X: {group: a, change: {evaluation.beam: 2}}", 2, "the same for all rows of a table"),
    ("fit --rows e.yaml", "base: {group: a, change: {}}", 2, "the row 'base' is already declared in"),
    ("fit --rows e.yaml", "X: {group: a, change: {}, PPL: -1}", 2, "PPL=-1: expected a number above 0"),
    # --- sizes and numbers ---
    ("fit --model.d_model 0", "", 2, "model.d_model=0: must be at least 1"),
    ("fit --model.N -1", "", 2, "model.N=-1: must be at least 1"),
    (f"{MINIATURE} --model.d_k 0", "", 2, "model.d_k=0: must be at least 1"),
    (f"{MINIATURE} --training.lr_factor nan", "", 2, "training.lr_factor=nan: expected a finite number"),
    (f"{MINIATURE} --training.lr_factor inf", "", 2, "training.lr_factor=inf: expected a finite number"),
    (FIT, "training: {adam_eps: .inf}", 2, "training.adam_eps=inf: expected a finite number"),
    (f"{MINIATURE} --training.tokens 0", "", 2, "training.tokens=0: must be above 0"),
    (f"{MINIATURE} --evaluation.beam 0", "", 2, "evaluation.beam=0: must be above 0"),
    (f"{MINIATURE} --model.kv_heads 3", "", 2, "model.kv_heads=3: must divide model.h=8"),
    (f"{MINIATURE} --evaluation.weights average", "", 2, "needs training.average_last of at least 1"),
    (f"{MINIATURE} --data.share 0", "", 2, "data.share=0.0: must be in (0, 1]"),
    ("fit --seed -1", "", 2, "training.seed=-1: must not be negative"),
    ("fit --seed 1.5", "", 2, "--seed='1.5': expected a whole number"),
    (f"plan {TABLE3[6:]} --rate -3", "", 2, "--rate=-3.0: must not be negative"),
    (f"plan {TABLE3[6:]} --rate fast", "", 2, "--rate='fast': expected a number"),
    (f"{TABLE3} --seeds 5-1", "", 2, "a seed appears twice, or a range is empty"),
    (f"{TABLE3} --seeds 1,1", "", 2, "a seed appears twice"),
    (f"{TABLE3} --seeds 0-9999999", "", 2, "10,000,000 seeds; at most 10,000 are taken"),
    (f"{TABLE3} --max-seeds 9", "", 2, "--max-seeds=9: only with --seeds auto"),
    (f"{TABLE3} --trials 3", "", 2, "is a table: all its rows run, to their end"),
    (f"{TABLE3} --workers 1.5", "", 2, "--workers='1.5': expected a whole number"),
    (f"{TABLE3} --slurm.jobs 2", "", 2, "--slurm.jobs=2 needs --launcher slurm"),
    (f"{TABLE3} --trainer.num_nodes 2", "", 2, "one run over several machines takes torchrun"),
    (f"{MINIATURE} --trainer.num_nodes 2", "", 2, "trainer.num_nodes=2: one run over several machines takes torchrun"),
    (f"{TABLE3} --slurm.jobs 4 --slurm.minutes 240", "", 2, "--slurm.minutes=240 needs --launcher slurm"),
    (f"{TABLE3} --no-shared-files", "", 2, "--no-shared-files needs --storage postgresql+psycopg"),
    (f"{TABLE3} --wandb yes", "", 2, "--wandb='yes': valid: off, offline, online"),
    (f"{SEARCH} --row base", "", 2, "a search starts from its experiment file, not from a row"),
    (f"{SEARCH} --sampler tpee", "", 2, "--sampler=tpee: valid: tpe"),
    # --- rows that leave a study or change their names ---
    ("study", "", 2, "required: action, study, row"),
    ("study hide mine X", "", 2, "no study 'mine' in results/studies"),
    ("study show mine X", "", 2, "no study 'mine' in results/studies"),
    # --- where things are written, and ports ---
    ("fit --config experiments/miniature.yaml --out e.yaml", "", 2, "--out=e.yaml: e.yaml is a file; name a folder"),
    (f"{TABLE3} --out e.yaml/deeper", "", 2, "--out=e.yaml/deeper: e.yaml is a file"),
    ("runs list --out e.yaml", "", 2, "--out=e.yaml: e.yaml is a file"),
    ("status --out e.yaml", "", 2, "--out=e.yaml: e.yaml is a file"),
    ("demo --out e.yaml", "", 2, "--out=e.yaml: e.yaml is a file"),
    ("report mine --serve --port 70000", "", 2, "--port=70000: a port is between 0 and 65535"),
    ("dashboard --port 70000", "", 2, "--port=70000: a port is between 0 and 65535"),
    (
        "dashboard --out nowhere",
        "",
        2,
        "--out=nowhere: no such folder; give the one with your runs and studies, or begin one: lightning-tfm demo",
    ),
    ("dashboard --sort ppl", "", 2, "unknown option '--sort' (value 'ppl')"),
    ("layers --kernel 0", "", 2, "--kernel=0: must be at least 1"),
    ("layers --d_model 24", "", 2, "--d_model=24: must be divisible by 16"),
    ("layers --format svg", "", 2, "--format='svg': valid: json, text"),
    ("inspect mine --beams 0", "", 2, "--beams=0: expected whole numbers above 0"),
    ("inspect mine --lines -1", "", 2, "--lines=-1: must not be negative"),
    ("layers --study mine", "", 2, "no study 'mine'"),
    ("draw --config e.yaml", "model: {h: 4, hh: 8}", 2, "unknown key 'model.hh'"),
    ("draw --row A-h", "", 2, "no row 'A-h'"),
    ("report mine --port -1", "", 2, "--port=-1: a port is between 0 and 65535"),
    # --- one of the words of a verb ---
    ("records send x y", "", 2, "records send: valid: pack, unpack"),
    ("records pack mine", "", 2, "records pack needs a study and a file"),
    ("wandb reply mine", "", 2, "wandb reply: did you mean 'replay'?"),
    ("data prepar", "", 2, "data prepar: did you mean 'prepare'?"),
    ("data prepare wmt14", "", 2, "data prepare wmt14: did you mean 'wmt14-en-"),
    ("data prepare files", "", 2, "needs --data.folder"),
    # --- what the verb would not look at ---
    (
        f"validate a1b2 {GPU} --trainer.devices 4",
        "",
        2,
        "--trainer.accelerator=gpu: validate ignores it, of",
    ),
    ("test a1b2 --trainer.devices 4", "", 2, "of trainer.… it uses only accelerator=cpu, threads: remove it"),
    ("translate a1b2 --trainer.products onednn", "", 2, "--trainer.products=onednn: translate ignores it"),
    ("export a1b2 --trainer.threads 2", "", 2, "export ignores it, it uses nothing of trainer.…"),
    ("draw --trainer.devices 2", "", 2, "--trainer.devices=2: draw ignores it"),
    ("data show builtin --trainer.devices 2", "", 2, "--trainer.devices=2: data ignores it"),
    ("data prepare builtin --pairs 50", "", 2, "--pairs: belongs to data show, not to data prepare"),
    ("data prepare builtin --split val", "", 2, "--split: belongs to data show, not to data prepare"),
    ("data show builtin --sets newstest2014", "", 2, "--sets: belongs to data prepare, not to data show"),
    ("runs query", "", 2, "runs query needs a condition: 'h = 8 and ppl < 2.2'"),
    ("runs query h==eight", "", 2, "a text is written in single quotes: 'eight'"),
    ("runs list --force", "", 2, "--force: belongs to runs remove, not to runs list"),
    ("runs remove a1b2 --yes", "", 2, "--yes: belongs to runs gc, not to runs remove"),
    ("inspect mine --what heads --beams 2", "", 2, "--beams=2: belongs to --what beams"),
    ("report mine --serve --to x.html", "", 2, "--to=x.html: --serve shows the report in the browser"),
    ("report mine --serve --format csv", "", 2, "--format=csv: --serve shows the report in the browser"),
    ("report mine --port 9000", "", 2, "--port=9000: only with --serve"),
    (f"{TABLE3} --tune-seeds 7", "", 2, "--tune-seeds=7: only with --tune"),
    ("table --params --table2", "", 2, "--params and --table2: give only one of the two"),
    ("runs gc now", "", 2, "runs gc takes no run"),
    ("runs retry", "", 2, "runs retry needs a study or a run, see: status, runs list"),
    ("table --params mine", "", 2, "--params is about the paper's rows"),
    ("table --rows e.yaml", ROWS, 2, "--rows is for --params"),
    ("table mine --vocab 9", "", 2, "--vocab is for --params"),
    ("table --params --format csv", "", 2, "--params prints only text and json"),
    ("compare mine", "", 2, "name a second study to compare it with"),
    ("compare mine mine", "", 2, "a study appears twice"),
    ("meta-analysis mine mine", "", 2, "a study appears twice"),
    ("scaling mine mine", "", 2, "needs two different studies, or more, of different names"),
    ("scaling mine yours --target 0", "", 2, "--target=0: millions of parameters, above 0"),
    ("sweep sweeps/table3.yaml --scales 16,x", "", 2, "--scales=16,x: expected numbers such as"),
    ("plan sweeps/search.yaml --scales 16,8", "", 2, "is a search; a scaling study compares rows"),
    ("fit --config e.yaml", "miniature: {hold: ratio}", 2, "miniature.hold='ratio': did you mean 'ratios'?"),
    ("fit --miniature.seen 0.5", "", 2, "scales the budget of miniature.hold=ratios: set that, too"),
    ("fit --miniature.hold ratios --miniature.seen 0", "", 2, "miniature.seen=0.0: expected a number above 0"),
    ("fit --miniature.hold ratios --training.schedule cosine", "", 2, "not of cosine"),
    ("meta-analysis mine yours ours --family mine,you", "", 2, "--family=you: did you mean 'yours'?"),
    ("status mine --json --watch", "", 2, "--json and --watch: give only one of the two"),
    ("status --storage x", "", 2, "--storage needs a study"),
    ("doctor --sed 3", "", 2, "unknown option '--sed' (value '3')"),
    ("demo --config e.yaml", "", 2, "unknown option '--config'"),
    ("resume mine --seeds 1-3", "", 2, "--seeds belongs to what the study is"),
    ("resume mine --model.h 3", "", 2, "--model.h belongs to what the study is"),
    ("resume mine --worker 3", "", 2, "did you mean '--workers'?"),
    ("resume mine", "", 2, "no study 'mine'"),
    ("export --to csv", "", 2, "the following arguments are required: what"),
    ("export mine --to csv", "", 2, "'mine' is not a study, search or run below results"),
    ("export --to onnx", "", 2, "--to='onnx'"),
]
LATER = [
    ("records pack mine x.tar.xz", "", 2, "no study 'mine'"),
    ("records unpack e.yaml", "", 2, "e.yaml: not an archive of a study's records"),
    ("work mine", "", 2, "no study 'mine'"),
    ("wandb replay mine", "", 2, "no study 'mine'"),
    ("report mine", "", 2, "no study 'mine'"),
    ("table mine", "", 2, "no study 'mine'"),
    ("compare mine yours", "", 2, "no study 'mine'"),
    ("meta-analysis mine yours ours", "", 2, "no study 'mine'"),
    ("scaling mine yours", "", 2, "no study 'mine'"),
    ("status mine", "", 2, "no study 'mine'"),
    ("test a1b2", "", 2, "run 'a1b2' under results/runs: none"),
    ("runs retry a1b2", "", 2, "run 'a1b2' under results/runs: none"),
    ("data prepare builtin --sets newstest2014", "", 2, "--sets=newstest2014: only for wmt14-en-de"),
    ("validate a1b2 --trainer.accelerator cpu --trainer.threads 1", "", 2, "run 'a1b2' under results/runs: none"),
    ("validate a1b2 --config e.yaml", "trainer: {devices: 4}", 2, "run 'a1b2' under results/runs: none"),
    (f"{TABLE3} --storage sqlite:///x.db", "", 2, "SQLite has no row locks"),
    (SWEEP, "parameters: {row: {values: [base]}}\ncommand: [a]", 2, "e.yaml: the key 'method' is missing"),
    (SWEEP, f"{GRID}\ncommand: [python, x.py]", 2, "it must begin with 'lightning-tfm', 'fit'"),
    (SWEEP, f"{GRID}\ncommand: [lightning-tfm, fit]", 2, "command needs '${args}' once"),
    (SWEEP, f"{GRID}\ncommand: {ARGS}\nearly_terminate: {{}}", 2, "every row runs to its end; remove it"),
    (SWEEP, f"{GRID}\ncommand: {ARGS}\nname: 3", 2, "e.yaml:4: name=3: expected text"),
    (
        SWEEP,
        f"{GRID}\ncommand: {ARGS}\nmetod: x",
        2,
        "e.yaml:4: unknown key 'metod' (value 'x'): did you mean 'method'?",
    ),
    # found with more imported: the storage, or a class of the user's own
    (f"{TABLE3} --name a/b", "", 2, "not a valid study name"),
    ("fit --model.positions my_module.Mine", "", 2, "model.positions='my_module.Mine': cannot import it"),
    (
        f"{OWN}.Lacking",
        "",
        2,
        "lacks embed(): define it with the arguments that it has in lightning_tfm.model.positions",
    ),
    (f"{OWN}.Unrelated", "", 2, "must derive from EmbeddingScheme or RotationScheme or BiasScheme"),
    ("fit --model.feed_forward mistaken.Unfinished", "", 2, "model.feed_forward='mistaken.Unfinished' lacks "),
    (f"{OWN}.value", "", 2, "expected a class, got 3"),
    (f"{TABLE3} --model.positions mistaken.Lacking", "", 2, "lacks embed()"),
    (
        f"{SEARCH} --model.positions mistaken.Lacking",
        "",
        2,
        "a limit on parameters needs built-in classes",
    ),
]
CLASSES = """
from lightning_tfm.model.feed_forward import FeedForward
from lightning_tfm.model.positions import EmbeddingScheme
value = 3
class Lacking(EmbeddingScheme):
    def embd(self, x_BTD, scale, start):
        return x_BTD
class Unfinished(FeedForward):
    pass
class Unrelated:
    pass
"""


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "visible_gpus", lambda: [])
    monkeypatch.setattr("lightning_tfm.queue.resources.visible_gpus", lambda: [])
    monkeypatch.setattr(devices, "FOREIGN_GPUS", ())


@pytest.mark.parametrize(("line", "file", "code", "words"), TABLE + LATER)
def test_exit_code_and_words(line, file, code, words, tmp_path, monkeypatch, capsys):
    (tmp_path / "mistaken.py").write_text(CLASSES)
    (tmp_path / "e.yaml").write_text(file)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mistaken", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert main(line.split()) == code
    said = capsys.readouterr().err
    assert words in said and said.startswith("lightning-tfm: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e.yaml", "mistaken.py"], "nothing was prepared"


def test_every_verb_has_its_lines():
    """A new verb adds some: what it is given wrongly, and what it says."""
    lines = [line for line, *_ in TABLE + LATER]
    assert len(lines) > 190
    counts = {verb: sum(line.split()[0] == verb for line in lines) for verb in VERBS}
    assert {verb for verb, count in counts.items() if not count} == set()


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UserError("give --training.tokens 9"), 2, ""),
        (
            FloatingPointError("the loss is nan at step 3"),
            78,
            "nan_loss: FloatingPointError: the loss is nan at step 3",
        ),
        (OSError(errno.ENOSPC, "No space left", "x"), 79, "disk_full: OSError: [Errno 28] No space left: 'x'"),
        (MemoryError("9 GiB"), 77, "out_of_memory: MemoryError: 9 GiB"),
        (KeyError("x"), 1, "Traceback"),
    ],
)
def test_what_has_a_name_ends_in_a_line_and_only_the_unexpected_in_a_traceback(error, code, words, capsys):
    def fail():
        raise error

    endings = []
    assert guarded(fail, endings.append) == code
    said = capsys.readouterr().err
    assert words in said and ("Traceback" in said) == (words == "Traceback") and len(endings) == 1


def test_a_full_disk_is_said_by_every_verb(monkeypatch, capsys, tmp_path):
    def full(*anything):
        raise OSError(errno.ENOSPC, "No space left on device", "there/store")

    monkeypatch.setattr("lightning_tfm.cli.follow.runs._act", full)
    assert main(["runs", "list", "--out", str(tmp_path)]) == 79
    assert "no space left on the disk (there/store); free some" in capsys.readouterr().err
    monkeypatch.setattr(
        preflight, "check_steps", lambda *given: (_ for _ in ()).throw(PermissionError(13, "denied", "x"))
    )
    monkeypatch.setattr("lightning_tfm.study.settings.check_steps", preflight.check_steps)
    assert main(["fit", "--out", str(tmp_path)]) == 2
    assert "lightning-tfm: x: denied" in capsys.readouterr().err


def test_no_message_about_a_sweep_file_has_words_of_python(tmp_path):
    """Every value of both files in turn replaced by values of other kinds."""
    sweep = yaml.safe_load((ROOT / "sweeps" / "search.yaml").read_text())
    beside = {
        "sampler": "tpe",
        "seed": 0,
        "trials": 5,
        "constraints": {"parameters": 9.0},
        "objectives": {"dev/ppl": "x"},
    }
    wrong = ["x", 3, -1, 1.5, True, None, [], [[]], {}, {"a": 1}, float("nan")]
    said = set()
    for where, content in (("e.yaml", sweep), ("e.study.yaml", beside)):
        for path in paths(content):
            for value in wrong:
                (tmp_path / "e.yaml").write_text(yaml.safe_dump(sweep))
                (tmp_path / where).write_text(yaml.safe_dump(put(content, path, value)))
                try:
                    read_search(tmp_path / "e.yaml")
                except UserError as error:
                    said.add(str(error))
    assert len(said) > 100
    assert not [text for text in said if re.search(r"Input should|typing|Literal|Union|NoneType|<class", text)]


def paths(content: object, above: tuple = ()):
    if isinstance(content, dict):
        for key, value in content.items():
            yield (*above, key)
            yield from paths(value, (*above, key))


def put(content: dict, path: tuple, value: object) -> dict:
    first, *rest = path
    return content | {first: put(content[first], tuple(rest), value) if rest else value}


ALL_AT_ONCE = """
import sys
from lightning_tfm.cli.main import main
from lightning_tfm.queue import devices
from lightning_tfm.queue import resources
resources.visible_gpus = devices.visible_gpus = lambda: []
devices.FOREIGN_GPUS = ()
heavy = "torch lightning optuna sentencepiece wandb scipy sacrebleu rich".split()
for line in {lines!r}:
    assert main(line.split()) == 2, line
    found = set(heavy) & set(sys.modules)
    assert not found, (line, found)
"""


def test_nothing_heavy_is_imported_for_a_mistake(tmp_path):
    lines = [line for line, file, _, _ in TABLE if not file and "e.yaml" not in line]
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"} | {"PYTHONPATH": str(ROOT)}
    code = ALL_AT_ONCE.format(lines=lines)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("lightning-tfm: ") >= len(lines)


def test_tokenizers_are_sacrebleus():
    assert set(TOKENIZERS) == set(sacrebleu.BLEU.TOKENIZERS)


def test_a_tokenizer_that_needs_a_package(monkeypatch):
    monkeypatch.setattr(preflight, "find_spec", lambda name: None)
    preflight.check_scoring(Evaluation(bleu_tokenize="intl"))
    with pytest.raises(UserError, match=r"needs: pip install 'sacrebleu\[ko\]'"):
        preflight.check_scoring(Evaluation(bleu_tokenize="ko-mecab"))


def test_a_gpu_that_is_hidden_or_that_torch_was_built_without(monkeypatch):
    from lightning_tfm.config import Hardware

    asked = Hardware(accelerator="gpu")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match="CUDA_VISIBLE_DEVICES='' hides them"):
        devices.check_accelerator(asked)
    monkeypatch.setattr(devices, "visible_gpus", lambda: ["0"])
    monkeypatch.setattr(devices, "version", lambda name: "2.13.0+cpu")
    with pytest.raises(UserError, match=r"torch 2\.13\.0\+cpu is built without CUDA"):
        devices.check_accelerator(asked)
    monkeypatch.setattr(devices, "version", lambda name: "2.13.0")
    devices.check_accelerator(asked)
    monkeypatch.setattr(devices, "visible_gpus", lambda: [])
    devices.check_accelerator(Hardware(accelerator="auto"))


def test_a_warm_up_as_long_as_the_run_reaches_its_peak():
    base = override(Experiment(), {"training.steps": 8000, "miniature.steps": 2}, "test")
    check_trainable(base, "fits")
    with pytest.raises(UserError, match=r"longer: training\.warmup=4001"):
        check_trainable(override(base, {"training.warmup": 4001}, "test"), "longer")
