"""A prepared text's data card, for people."""

from lightning_tfm.data.dataset import Prepared


def card_text(prepared: Prepared, max_len: int) -> str:
    """The card, and how many training pairs have more than `max_len` pieces on a side."""
    card, tokenizer = prepared.card, prepared.card["tokenizer"]
    languages = " -> ".join(filter(None, card["languages"]))
    lines = [f"{card['corpus']}, {languages}; {tokenizer['V']} tokens, {tokenizer['sha256'][:16]}"]
    for role, split in card["splits"].items():
        pairs = split["pairs"]
        lines.append(
            f"{role:6}{split['name']}: {pairs['kept']:,} pairs of {pairs['read']:,}; {split['fingerprint'][:16]}"
        )
        for rule, count in pairs["dropped"].items():
            where = ", ".join(split["dropped_first"][rule]) if "dropped_first" in split else ""
            lines.append(f"        {count:,} dropped: {rule}" + (f" (first at {where})" if where else ""))
        known_by = "sources" if card["languages"][0] else "texts"
        for other, count in split["source_also_in"].items():
            lines += [f"        {count:,} {known_by} also occur in {other}"] if count else []
        for side, pieces in split["pieces"].items():
            lines += [
                f"        {side}: {pieces['total']:,} tokens, {pieces['unknown']:,} unknown; a line {pieces['mean']}, "
                f"half up to {pieces['50%']}, 99 % up to {pieces['99%']}, longest {pieces['longest']}"
            ] * bool(pieces["total"])
    left = f"{prepared.too_long(max_len):,} of {len(prepared.train):,} training pairs"
    return "\n".join([*lines, f"data.max_len={max_len} leaves out {left}"])
