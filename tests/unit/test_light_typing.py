"""The light `NamedTuple` does what that of `typing` does."""

import copy
import pickle
from typing import Any, NamedTuple

import pytest

from oncecron.core import light_typing


class Light(light_typing.NamedTuple):
    """A tuple of the light kind."""

    name: str
    count: int = 3

    @property
    def doubled(self) -> int:
        return 2 * self.count


class Typed(NamedTuple):
    """The same of the usual kind."""

    name: str
    count: int = 3


def given(*values: Any, **named: Any) -> tuple[Any, Any]:
    """Return what both kinds make of the same arguments: a tuple, or the kind of error."""
    made = []
    for kind in (Light, Typed):
        try:
            made.append(tuple(kind(*values, **named)))
        except TypeError as error:
            made.append(type(error))
    return made[0], made[1]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (("a", 1), {}), (("a",), {}), ((), {"name": "a"}), ((), {"count": 1, "name": "a"}),
        (("a",), {"count": 1}), ((), {}), ((), {"count": 1}), (("a", 1, 2), {}), (("a", 1), {"count": 2}),
        (("a",), {"name": "b"}), (("a",), {"other": 2}),
    ],
)  # fmt: skip
def test_it_takes_and_refuses_the_same_arguments(
    values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    """By position, by name, by default; one too many, one too few, twice, unknown."""
    light_one, typed_one = given(*values, **named)
    assert light_one == typed_one


def test_it_is_a_tuple_with_names() -> None:
    """It compares, hashes, unpacks, matches and shows itself as the usual kind does."""
    one, other = Light("a"), Typed("a")
    assert one == ("a", 3)
    assert hash(one) == hash(other)
    assert (one.name, one.count, one.doubled) == ("a", 3, 6)
    assert Light._fields == Typed._fields
    assert one._asdict() == other._asdict()
    assert repr(one) == repr(other).replace("Typed", "Light")
    match one:
        case Light(name, count=count):
            assert (name, count) == ("a", 3)
        case _:
            pytest.fail("it does not match")


def test_it_is_replaced_and_never_changed() -> None:
    """`_replace` and `_make` return new ones; no attribute can be set."""
    one = Light("a")
    assert one._replace(count=5) == Light("a", 5)
    assert Light._make(["b", 1]) == Light("b", 1)
    for kind in (Light, Typed):
        with pytest.raises(TypeError):  # a default is for those who call the class
            kind._make(["b"])
    assert (one, type(one._replace(count=5))) == (Light("a", 3), Light)
    with pytest.raises(ValueError, match="other"):
        one._replace(other=1)
    with pytest.raises(AttributeError):
        one.name = "b"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        one.other = "b"  # type: ignore[attr-defined]


def test_it_is_copied_and_pickled() -> None:
    """As values are that go to another process."""
    one = Light("a", 7)
    for twin in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):  # noqa: S301
        assert (twin, type(twin)) == (one, Light)
