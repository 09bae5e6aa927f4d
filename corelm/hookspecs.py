"""Every hook of corelm. Hooks are called at start-up and build objects; the objects do the work.

A plugin is a module with some of these functions, marked with `corelm.api.hookimpl` and named by an entry
point in the group ``corelm``::

    [project.entry-points.corelm]
    my_policy = "my_policy"
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import pluggy
from pydantic import BaseModel

from corelm.contracts.diagnosis import Finding
from corelm.contracts.executor import Executor, ExecutorContext
from corelm.contracts.frontend import Frontend, FrontendContext
from corelm.contracts.grammar import GrammarCompiler, GrammarContext
from corelm.contracts.logits import LogitsProcessor, LogitsProcessorContext
from corelm.contracts.model import ResolvedModel
from corelm.contracts.observer import Observer, ObserverContext
from corelm.contracts.scheduling import PolicyContext, SchedulingPolicy
from corelm.contracts.tokenizer import Tokenizer, TokenizerContext

hookspec = pluggy.HookspecMarker("corelm")
hookimpl = pluggy.HookimplMarker("corelm")

ContextT = TypeVar("ContextT", covariant=True)
ProductT = TypeVar("ProductT", contravariant=True)
GivenT = TypeVar("GivenT", contravariant=True)
MadeT = TypeVar("MadeT", covariant=True)
Context = TypeVar("Context")
Product = TypeVar("Product")


class Register(Protocol[ContextT, ProductT]):
    """The callback that registration hooks are given.

    `name` is what users select. `factory` is called once, when the name was selected: import heavy
    libraries there. `settings` is a pydantic model; its fields become ``CORELM_<NAME>_<FIELD>``, the flag
    ``--<name>.<field>`` and the table ``[<name>]`` of the settings file, and an instance reaches the factory in
    ``context.settings``. `summary` is one line for ``corelm plugins``. `unavailable` returns why this machine
    cannot run it, or None; automatic selection passes over what is unavailable.
    """

    def __call__(
        self,
        name: str,
        factory: Callable[[ContextT], ProductT],
        *,
        settings: type[BaseModel] | None = None,
        summary: str = "",
        unavailable: Callable[[], str | None] | None = None,
    ) -> None: ...


class RegisterExtension(Protocol[ContextT, ProductT]):
    """The callback that hooks added by plugins are given.

    `name`, `factory` and `summary` mean the same as in `Register`; names may have capital letters. The context comes
    from the plugin that added the hook, which also uses the product.
    """

    def __call__(self, name: str, factory: Callable[[ContextT], ProductT], *, summary: str = "") -> None: ...


class Extensions(Protocol[GivenT, MadeT]):
    """What the loaded plugins registered through a hook that a plugin added. Complete once all plugins are loaded."""

    @property
    def names(self) -> tuple[str, ...]:
        """All that can be created, sorted."""

    def create(self, name: str, context: GivenT) -> MadeT:
        """Call the factory registered as `name`.

        Raises `PluginError` if there is none, if two plugins registered one, or if it fails, naming the plugin.
        """


class AddHook(Protocol):
    """The callback that adds a hook: `spec` is its specification, a function with the one argument `register`.

    The name of the function begins with ``corelm_`` and the plugin's entry-point name; its docstring is for the
    authors of other plugins.
    """

    def __call__(self, spec: Callable[[RegisterExtension[Context, Product]], None]) -> Extensions[Context, Product]: ...


@hookspec
def corelm_add_hooks(add: AddHook) -> None:
    """Add hooks of this plugin's own, for other plugins to implement. Keep what `add` returns.

    Called before anything is registered. A plugin that implements such a hook is not loaded where the plugin that
    adds it is missing, unless the implementation is marked ``hookimpl(optionalhook=True)``.
    """


@hookspec
def corelm_register_executors(register: Register[ExecutorContext, Executor]) -> None:
    """Register executors, which run models."""


@hookspec
def corelm_register_schedulers(register: Register[PolicyContext, SchedulingPolicy]) -> None:
    """Register scheduling policies, which decide who runs next."""


@hookspec
def corelm_register_tokenizers(register: Register[TokenizerContext, Tokenizer]) -> None:
    """Register tokenizers, which turn text into tokens and back."""


@hookspec
def corelm_register_frontends(register: Register[FrontendContext, Frontend]) -> None:
    """Register frontends, which talk to clients."""


@hookspec
def corelm_register_observers(register: Register[ObserverContext, Observer]) -> None:
    """Register observers, which are told what the engine does. Any number can be selected."""


@hookspec
def corelm_register_logits_processors(register: Register[LogitsProcessorContext, LogitsProcessor]) -> None:
    """Register logits processors, which change what requests that name them sample from. Any number can be selected."""


@hookspec
def corelm_register_grammars(register: Register[GrammarContext, GrammarCompiler]) -> None:
    """Register grammar compilers, which keep outputs to a schema, a regular expression, a choice or a grammar."""


@hookspec(firstresult=True)
def corelm_resolve_model(name: str) -> ResolvedModel | None:
    """Find the files of the model called `name` on this machine.

    Called once at start-up, off the event loop. Return None if the name is not of a kind this plugin knows; raise
    `ModelLoadError` if it is, but the files are missing or unusable.
    """


@hookspec
def corelm_diagnose(settings: Mapping[str, Any]) -> Iterable[Finding]:
    """Say what of this plugin runs on this machine, and why: ``corelm doctor`` prints it.

    `settings` has an instance of each settings model that this plugin registered, by the registration's name, as far
    as they could be read. Load no model and import nothing heavy: it is to take a fraction of a second. It may be a
    generator; if it raises, that is one more problem after what it found.
    """
    return ()
