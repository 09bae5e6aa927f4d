"""How large everything is: as on a real model, or so small that Triton's interpreter gets through it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured."""

    dtype: str
    """Of weights, activations and KV cache."""
    model: str
    """The model of which steps and requests are timed; its layers are the shapes of all kernels."""
    checked_model: str
    """The model that is compared with a reference."""
    checked_prompts: tuple[int, ...]
    checked_output: int
    block_size: int = 16
    decodes: tuple[tuple[int, int], ...]
    """Sequences and context."""
    decodes_fp8: tuple[tuple[int, int], ...]
    """The same with a KV cache of 8 bits."""
    prefills: tuple[int, ...]
    """Tokens of a prompt."""
    rows: tuple[int, ...]
    """Tokens of a step, for kernels that take them one by one."""
    steps: tuple[int, ...]
    """Sequences of a step."""
    step_context: int
    step_max_len: int | None
    """The longest sequence that the executor makes room for; None for the model's own."""
    timed_steps: int
    requests: tuple[int, ...]
    """At a time."""
    prompt: int
    output: int
    batched_tokens: int
    copied_bytes: int
    product: int
    """Rows, columns and inner dimension of the matrix product that gives the rate."""
    repeats: int


REAL = Sizes(
    dtype="bfloat16",
    model="random:8b",
    checked_model="random:small",
    checked_prompts=(1, 15, 16, 17, 300, 1000),
    checked_output=24,
    decodes=tuple((batch, context) for context in (1024, 8192, 32768) for batch in (1, 16, 64, 128)),
    decodes_fp8=((1, 32768), (64, 8192)),
    prefills=(2048, 8192, 32768),
    rows=(1, 32, 128, 8192),
    steps=(1, 32, 128),
    step_context=1024,
    step_max_len=None,
    timed_steps=40,
    requests=(1, 32, 128),
    prompt=512,
    output=128,
    batched_tokens=8192,
    copied_bytes=4 * 2**30,
    product=8192,
    repeats=21,
)
TINY = Sizes(
    dtype="float32",
    model="random:tiny",
    checked_model="random:tiny",
    checked_prompts=(1, 17),
    checked_output=3,
    decodes=((1, 40), (2, 70)),
    decodes_fp8=((1, 40),),
    prefills=(40,),
    rows=(1, 2),
    steps=(1, 2),
    step_context=20,
    step_max_len=128,
    timed_steps=1,
    requests=(1, 2),
    prompt=10,
    output=3,
    batched_tokens=64,
    copied_bytes=2**20,
    product=64,
    repeats=1,
)
