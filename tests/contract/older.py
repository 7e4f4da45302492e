"""What a store has of a host (`core.presence`), as if it had been written earlier."""

from oncecron.core.presence import fields_of


def older_past(past: str, seconds: float) -> str:
    """Return the spans of earlier pauses, each so many seconds earlier."""
    spans = (map(int, each.split("-")) for each in past.split())
    return "".join("-".join(f"{at - round(seconds):010}" for at in span) + " " for span in spans)


def older(presence: str, seconds: float) -> str:
    """Return the text with its times so many seconds earlier."""
    fields = fields_of(presence)
    fields["hour"] = str(int(fields["hour"]) - round(seconds) // 3600)
    if "ticks_at" in fields:
        times = (float(at) - seconds for at in fields["ticks_at"].split())
        fields["ticks_at"] = " ".join(f"{at:.6f}" for at in times)
    return "\n".join(f"{name} {value}" for name, value in fields.items())
