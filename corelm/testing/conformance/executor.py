"""The suite for executors."""

from corelm.testing.conformance.executor_embeddings import EmbeddingChecks
from corelm.testing.conformance.executor_grammar import GrammarChecks
from corelm.testing.conformance.executor_loading import LoadingChecks
from corelm.testing.conformance.executor_logprobs import LogprobChecks
from corelm.testing.conformance.executor_memory import MemoryChecks
from corelm.testing.conformance.executor_picking import PickingChecks
from corelm.testing.conformance.executor_processors import ProcessorChecks
from corelm.testing.conformance.executor_sampling import SamplingChecks
from corelm.testing.conformance.executor_steps import StepChecks


class ExecutorConformance(
    GrammarChecks,
    EmbeddingChecks,
    ProcessorChecks,
    LogprobChecks,
    PickingChecks,
    SamplingChecks,
    MemoryChecks,
    StepChecks,
    LoadingChecks,
):
    """Checks an executor against its contract, with plans like those of the engine::

        class TestMine(ExecutorConformance):
            model = ResolvedModel(name="tiny", path=Path("tests/tiny"), format="huggingface")

            def make_executor(self, context):
                return MyExecutor(context)

    Needs no server, and no GPU unless the executor does. Use a small model with random weights and a vocabulary of at
    least a hundred tokens. What `ExecutorInfo` does not declare is skipped, what it declares has to work. The class
    attributes are the limits of the `ExecutorContext`; override them where the executor needs others.
    """
