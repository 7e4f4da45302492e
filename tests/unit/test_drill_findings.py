"""What a certificate says first: of each rule one finding, and of the worst rule before the others."""

from __future__ import annotations

from oncecron.drill.assess import ordered
from oncecron.drill.certificate import Finding


def found(rule: str, number: int, *, hole: bool = False) -> Finding:
    """Return one."""
    return Finding(rule, f"{rule} {number}", hole, "")


def test_many_of_one_rule_do_not_hide_another() -> None:
    """A store that forgets has dozens of items that are not recorded, and one tick that started twice."""
    many = [found("untrue", number) for number in range(50)]
    lost = found("lost-write", 0, hole=True)
    findings = ordered([*many, found("overlap", 0), found("double", 0), found("double", 1), lost])
    assert [each.sentence for each in findings[:6]] == [
        "double 0", "overlap 0", "untrue 0", "lost-write 0", "double 1", "untrue 1",
    ]  # fmt: skip
    assert findings[6:] == many[2:]
