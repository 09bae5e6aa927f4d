import pytest
import torch
from corelm_gpu.kernels.copy_blocks import copy_blocks, copy_blocks_reference, independent
from corelm_gpu.kernels.norm import add_norm, add_norm_reference
from corelm_gpu.kernels.rotate_write import rotate_reference, rotate_write, write_reference
from corelm_gpu.kernels.silu import silu_mul, silu_mul_reference
from corelm_gpu.kernels.token_mask import apply_mask, apply_mask_reference
from gpu_kernels import DEVICE, DTYPES, assert_close, ints, poisoned, random


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 64), (5, 576), (2, 1000)])
@pytest.mark.parametrize("add", [True, False])
def test_norm(rows, width, add, dtype):
    x = random(rows, width, dtype=dtype) if add else None
    residual, weight = random(rows, width, dtype=dtype), random(width, dtype=dtype)
    total, wanted = add_norm_reference(x, residual, weight, 1e-5)
    normed = poisoned(rows, width, dtype=dtype)
    add_norm(x, residual, weight, normed, 1e-5).run()
    assert_close(normed, wanted)
    assert_close(residual, total)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 64), (2, 1536), (2, 1025)])
def test_silu_of_one_wide_product(rows, width, dtype):
    both = random(rows, 2 * width, dtype=dtype)
    gate, up = both.split(width, dim=1)
    product = poisoned(rows, width, dtype=dtype)
    silu_mul(gate, up, product).run()
    assert_close(product, silu_mul_reference(gate, up))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "half"), [(4, 2, 64, 32), (8, 1, 80, 40), (3, 3, 96, 16), (2, 1, 64, 0)]
)
def test_rotation_and_cache(heads, kv_heads, head_dim, half, dtype):
    tokens, blocks, block_size = 5, 4, 7
    qkv = random(tokens, (heads + 2 * kv_heads) * head_dim, dtype=dtype)
    q, k, v = qkv.split([heads * head_dim, kv_heads * head_dim, kv_heads * head_dim], dim=1)
    q, k, v = (part.unflatten(1, (-1, head_dim)) for part in (q, k, v))
    cos, sin = torch.rand(2, 50, half, device=DEVICE)
    positions = torch.tensor([0, 49, 7, 8, 3], device=DEVICE)
    slots = torch.tensor([3 * block_size, 0, -1, block_size + 2, 2 * block_size - 1], device=DEVICE)
    rotated = poisoned(tokens, heads, head_dim, dtype=dtype)
    keys, values = (poisoned(blocks, kv_heads, block_size, head_dim, dtype=dtype) for _ in range(2))
    wanted_keys, wanted_values = keys.double(), values.double()
    rotate_write(q, k, v, cos, sin, positions, slots, rotated, keys, values).run()
    assert_close(rotated, rotate_reference(q, cos, sin, positions))
    write_reference(wanted_keys, rotate_reference(k, cos, sin, positions), slots)
    write_reference(wanted_values, v, slots)
    for cache, wanted in ((keys, wanted_keys), (values, wanted_values)):
        assert torch.equal(cache.isnan(), wanted.isnan()), "only the slots were written"
        assert_close(cache.nan_to_num(), wanted.nan_to_num())


def test_a_cache_in_8_bits_holds_what_conversion_gives_and_no_overflow():
    tokens, kv_heads, head_dim, block_size = 6, 2, 128, 4
    magnitudes = 10.0 ** torch.linspace(-5, 4, tokens, device=DEVICE).view(-1, 1, 1)
    k, v = (random(tokens, kv_heads, head_dim, dtype=torch.float32) * magnitudes for _ in range(2))
    k[0, 0, :6] = torch.tensor([1.0625, 1.1875, 464.0, -1e9, torch.inf, 2**-10])
    none = torch.empty(0, 0, device=DEVICE)
    positions = torch.arange(tokens, device=DEVICE)
    keys, values = (
        torch.zeros(2, kv_heads, block_size, head_dim, dtype=torch.float8_e4m3fn, device=DEVICE) for _ in range(2)
    )
    q = random(tokens, 2, head_dim, dtype=torch.float32)
    rotate_write(q, k, v, none, none, positions, positions, torch.empty_like(q), keys, values).run()
    for cache, source in ((keys, k), (values, v)):
        written = cache.float().transpose(1, 2).flatten(0, 1)[:tokens]
        assert torch.equal(written, source.clamp(-448, 448).to(torch.float8_e4m3fn).float())


@pytest.mark.parametrize("vocab_size", [1, 33, 5000])
def test_mask(vocab_size):
    logits = random(4, vocab_size, dtype=torch.float32)
    rows = ints([2, 0])
    masks = torch.randint(-(2**31), 2**31 - 1, (2, -(-vocab_size // 32)), dtype=torch.int32, device=DEVICE)
    wanted = apply_mask_reference(logits, rows, masks)
    apply_mask(logits, rows, masks).run()
    assert torch.equal(logits, wanted)


def test_copies_between_caches_of_other_sizes():
    source = torch.randint(-(2**31), 2**31 - 1, (3, 5, 1500), dtype=torch.int32, device=DEVICE)
    target = torch.zeros(3, 7, 1500, dtype=torch.int32, device=DEVICE)
    wanted = target.clone()
    pairs = ints([[4, 0], [0, 6], [4, 2]])
    copy_blocks_reference(source, wanted, pairs)
    copy_blocks(source, target, pairs).run()
    assert torch.equal(target, wanted)


def test_pairs_that_depend_on_each_other_are_done_one_after_the_other():
    assert list(independent([])) == []
    assert list(independent([(0, 1), (0, 2), (3, 4)])) == [[(0, 1), (0, 2), (3, 4)]]
    assert list(independent([(0, 1), (1, 2)])) == [[(0, 1)], [(1, 2)]], "reads what was written"
    assert list(independent([(0, 1), (2, 0)])) == [[(0, 1)], [(2, 0)]], "writes what was read"
    assert list(independent([(0, 1), (2, 1)])) == [[(0, 1)], [(2, 1)]], "writes twice"
