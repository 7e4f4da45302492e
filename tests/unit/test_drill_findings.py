"""What a certificate says first: of each rule one finding, and of the worst rule before the others."""

from __future__ import annotations

from oncecron.drill.assess import ordered
from oncecron.drill.certificate import Finding


def found(rule: str, number: int, *, hole: bool = False) -> Finding:
    """Return one."""
    return Finding(rule, f"{rule} {number}", hole, "")


def test_many_of_one_rule_do_not_hide_another() -> None:
    """A store that forgets has dozens of items that are not recorded, and one tick that started twice."""
    many = [found("unexplained", number) for number in range(50)]
    excused = found("overlap", 0, hole=True)
    others = [excused, found("lost-write", 0, hole=True), found("overlap", 0)]
    findings = ordered([*many, *others, *(found("double", n, hole=True) for n in (0, 1))])
    assert [each.sentence for each in findings[:7]] == [
        "double 0", "overlap 0", "unexplained 0", "lost-write 0", "overlap 0", "double 1", "unexplained 1",
    ]  # fmt: skip
    assert findings[4] is excused
    assert findings[7:] == many[2:]
