"""The public surface changes on purpose only."""

import difflib
import inspect

import msgspec
from api_surface import SNAPSHOT, surface

import corelm.api

REMEDY = """\
The public surface differs from tests/core/api_snapshot.txt:

{difference}
If that is on purpose, see docs/compatibility.md for what is allowed, add a line to the API section of CHANGELOG.md, and
accept it with: python tests/core/api_surface.py"""


def difference(before, after):
    return "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "promised", "now", n=1))


def test_the_public_surface_is_what_was_promised():
    found = difference(SNAPSHOT.read_text(encoding="utf-8"), surface())
    assert not found, REMEDY.format(difference=found)


def test_structs_can_be_added_to_without_breaking_anybody():
    """Fields by name only, never changed by whoever is given one."""
    for name in corelm.api.__all__:
        item = getattr(corelm.api, name)
        if inspect.isclass(item) and issubclass(item, msgspec.Struct):
            assert item.__struct_config__.frozen, name
            kinds = {parameter.kind for parameter in inspect.signature(item).parameters.values()}
            assert kinds <= {inspect.Parameter.KEYWORD_ONLY}, name


def test_a_change_of_a_name_a_field_a_default_or_a_signature_is_seen(monkeypatch):
    def seen():
        return difference(SNAPSHOT.read_text(encoding="utf-8"), surface())

    monkeypatch.setattr(corelm.api, "__all__", [name for name in corelm.api.__all__ if name != "Chat"])
    assert "-class corelm.api.Chat(Struct)" in seen()
    monkeypatch.undo()
    context = msgspec.defstruct("PolicyContext", [("settings", object, None)], frozen=True)
    monkeypatch.setattr(corelm.api, "PolicyContext", context)
    assert "-    settings: Any\n+    settings: object = None" in seen()
    monkeypatch.undo()
    monkeypatch.setattr(corelm.api.SchedulingPolicy, "swap", lambda self, request, now: True)
    assert "-    def swap(self, request: RequestView) -> bool\n+    def swap(self, request, now)" in seen()
