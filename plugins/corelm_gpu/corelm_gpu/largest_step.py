"""The step that takes most memory."""

from corelm.api import ExecutorContext, ModelLoadError, SamplingParams, SequenceSlice, SequenceStart, StepPlan

SAMPLING = SamplingParams(temperature=1.0, top_k=50, top_p=0.9, repetition_penalty=1.1, seed=0, logprobs=1)
"""With a mask of a grammar beside it, it uses every kernel of sampling, so that all are compiled."""
MOST_LOGITS = 2**31 - 1
"""Of a step: places among them are sent to the device as int32."""


def largest_step(context: ExecutorContext, max_model_len: int, vocab_size: int) -> StepPlan:
    """As many tokens and as many sequences as there may be, all sampled. They share block 0.

    Raises `ModelLoadError` if these sequences have more logits than a step can.
    """
    sequences = min(context.max_num_seqs, context.max_num_batched_tokens)
    if sequences * vocab_size > MOST_LOGITS:
        raise ModelLoadError(
            f"A step of {sequences} sequences has too many logits with a vocabulary of {vocab_size} tokens; choose "
            f"--max-num-seqs up to {MOST_LOGITS // vocab_size}."
        )
    length = min(context.max_num_batched_tokens // sequences, max_model_len)
    mask = b"\xff" * (4 * -(-vocab_size // 32))
    blocks = (0,) * -(-length // context.block_size)
    return StepPlan(
        step_id=0,
        started=tuple(
            SequenceStart(seq_id=number, token_ids=[0] * length, prompt_len=length, sampling=SAMPLING)
            for number in range(sequences)
        ),
        slices=tuple(
            SequenceSlice(seq_id=number, start=0, num_tokens=length, new_block_ids=blocks, sample=True, allowed=mask)
            for number in range(sequences)
        ),
    )
