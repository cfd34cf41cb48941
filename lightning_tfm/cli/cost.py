"""`predict-cost`: time, memory and FLOPs of an experiment, from a measured short run."""

from collections.abc import Sequence

from lightning_tfm.cli.arguments import check_trainer, make_parser, only_printed, parse
from lightning_tfm.cli.terminal import fitted
from lightning_tfm.errors import UserError
from lightning_tfm.plurals import plural
from lightning_tfm.queue.devices import check_accelerator
from lightning_tfm.yaml_files import find_file


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(
        verb, "Predict time, memory and FLOPs of an experiment from a few of its micro-batches, measured here."
    )
    parser.add_argument("file", nargs="?", help="experiment file, short for --config FILE")
    parser.add_argument("--devices", type=int, default=8, help="also predict for this many devices like this one")
    parser.add_argument("--rate", type=float, default=0.0, help="FLOP/s that a device sustains [measured here]")
    settings = parse(parser, argv)
    if (file := settings.verb["file"]) is not None:
        settings = parse(parser, ["--config", str(find_file(file)), *argv])
    if only_printed(settings):
        return 0
    devices, rate = settings.verb["devices"], settings.verb["rate"]
    if devices < 1 or rate < 0:
        raise UserError(f"--devices={devices}, --rate={rate:g}: at least 1 device, no negative rate")
    check_trainer(settings, verb, "accelerator", "threads", "micro_tokens", "kernels", "products")
    exact = settings.exact
    check_accelerator(settings.hardware, exact.training.precision)

    from lightning_tfm.runs.cost import measure, predict
    from lightning_tfm.runs.outcome import say
    from lightning_tfm.watch.time_left import duration

    found = measure(exact, settings.hardware, settings.out, say)
    costs = [predict(exact, found, count, rate) for count in sorted({1, devices})]
    how = f"at most {found.micro_tokens:,} padded tokens" if found.micro_tokens else "a whole step"
    passes = f"{found.seconds_micro:.3g} s for {how} ({found.target_tokens_micro:,.0f} target tokens)"
    adam = f"{found.seconds_optimizer:.3g} s for Adam"
    state, peak = found.state_bytes / 2**30, found.peak_bytes / 2**30
    lines = [
        f"{found.parameters / 1e6:.1f} M parameters, {found.V:,} pieces, {found.text}",
        f"measured on {found.device}, {exact.training.precision}: {passes}, {adam}",
        f"FLOPs    {found.flops:.3g} a step, {costs[0].flops:.3g} in {exact.training.steps:,} steps",
        f"memory   {peak:.2f} GiB a device at this micro-batch, {state:.2f} of them weights, gradients and Adam",
    ]
    for cost in costs:
        speed = f"{cost.seconds_step:8.3g} s a step, {cost.target_tokens_per_second:10,.0f} target tokens/s"
        lines.append(f"{plural(cost.devices, 'device'):10} {speed}, {duration(cost.seconds)} in all")
    stated = f"; devices of {rate:.3g} FLOP/s as stated" if rate else ""
    print(fitted("\n".join([*lines, f"without validation, decoding and checkpoints{stated}"]), indent=9))
    return 0
