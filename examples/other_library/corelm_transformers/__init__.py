"""The executor "transformers": runs models with transformers' own code."""

from corelm.api import Executor, ExecutorContext, Register, hookimpl

corelm_api = ((0, 2), (1, 0))


def create(context: ExecutorContext) -> Executor:
    """Imports torch and transformers, which takes seconds: only once the executor was selected."""
    from corelm_transformers.executor import TransformersExecutor

    return TransformersExecutor(context)


@hookimpl
def corelm_register_executors(register: Register[ExecutorContext, Executor]) -> None:
    register("transformers", create, summary="any causal language model of transformers, one sequence at a time")
