"""Requests for embeddings: the prompt is computed, its vector is told, and nothing is generated."""

from collections.abc import Mapping

from corelm.engine.request import Request, Sequences
from corelm.engine.streams import AsyncStream
from corelm.errors import RequestFailedError
from corelm.outputs import Embedding, RequestOutput, TokenLogprobs
from corelm.scheduler.sequence import Sequence


class EmbeddingOutput(RequestOutput, frozen=True, kw_only=True):
    """The only output of such a request."""

    embedding: Embedding


class EmbeddingRequest(Request):
    """Its sequence wants no tokens, so it ends with the step that computes the last position of the prompt."""

    data: bytes | None = None
    """The vector, once the executor gave it."""

    def advance(
        self, sequences: Sequences, sequence: Sequence, token_ids: list[int], logprobs: list[TokenLogprobs] | None
    ) -> list[RequestOutput]:
        if self.data is None:
            raise RuntimeError("the executor gave no embedding")
        sequences.retire(sequence)
        embedding = Embedding(
            request_id=self.request_id,
            data=self.data,
            prompt_tokens=sequence.prompt_len,
            cached_tokens=sequence.cached_tokens or 0,
        )
        return [
            EmbeddingOutput(
                request_id=self.request_id,
                text="",
                token_ids=(),
                finish_reason="stop",
                prompt_tokens=embedding.prompt_tokens,
                cached_tokens=embedding.cached_tokens,
                completion_tokens=0,
                embedding=embedding,
            )
        ]


def enter_embeddings(embeddings: Mapping[int, bytes], owner: Mapping[int, Request], size: int) -> None:
    """Give the requests that live what a step computed, by seq_id. Raises `RuntimeError` if it is not of `size`."""
    for seq_id, data in embeddings.items():
        if len(data) != 4 * size:
            raise RuntimeError(f"the executor gave {len(data)} bytes for an embedding of {size} float32 numbers")
        if isinstance(request := owner.get(seq_id), EmbeddingRequest):
            request.data = data


async def embedding_of(stream: AsyncStream) -> Embedding:
    """Wait for the end of such a request. Raises its error."""
    output = await stream.result()
    if not isinstance(output, EmbeddingOutput):
        raise RequestFailedError("the request was aborted")
    return output.embedding
