"""Copies and swaps: sequences fork, go aside and come back as if nothing had happened."""

import math
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from corelm.api import ModelLoadError, SequenceSlice

SAMPLED = {"temperature": 1.3, "seed": 4, "repetition_penalty": 1.2}


def decode(driver, seq_id, known, tokens):
    """Sample `tokens` more tokens after `known`, all of which but the last are computed."""
    known = list(known)
    for _ in range(tokens):
        known += driver.step(driver.slice(seq_id, len(known) - 1, 1)).token_ids[0]
    return known


def begin(driver, tokens, **sampling):
    """Start a sequence and compute its prompt; returns its id and its tokens with the first new one."""
    start = driver.start(tokens, **sampling)
    result = driver.step(driver.slice(start.seq_id, 0, len(tokens)), started=[start])
    return start.seq_id, tokens + result.token_ids[0]


@pytest.mark.parametrize("length", [2, 16, 17, 18, 30, 32, 33])
def test_a_forked_sequence_goes_on_like_a_twin(drive_each, prompt, length):
    """The parent has gone on meanwhile, so its last block holds more than the child may see."""
    driver, tokens = drive_each("llama"), prompt(length)
    expected = driver.generate(tokens, tokens=10, **SAMPLED)[0]
    parent, known = begin(driver, tokens, seed=1, temperature=2.0)
    decode(driver, parent, known, 5)
    child, last = driver.start(tokens, **SAMPLED), (length - 1) // 16
    copied = driver.free.pop()
    driver.blocks[child.seq_id] = [*driver.blocks[parent][:last], copied]
    piece = SequenceSlice(
        seq_id=child.seq_id,
        start=length - 1,
        num_tokens=1,
        new_block_ids=tuple(driver.blocks[child.seq_id]),
        sample=True,
    )
    copies = ((driver.blocks[parent][last], copied),)
    result = driver.step(piece, started=[child], copies=copies)
    assert decode(driver, child.seq_id, tokens + result.token_ids[0], 9)[length:] == expected


def test_a_fork_does_not_disturb_its_parent(drive, prompt):
    driver, tokens = drive("llama"), prompt(20)
    expected = driver.generate(tokens, tokens=10, **SAMPLED)[0]
    parent, known = begin(driver, tokens, **SAMPLED)
    known = decode(driver, parent, known, 3)
    child = driver.start(tokens, **SAMPLED | {"seed": 5})
    copied = driver.free.pop()
    driver.blocks[child.seq_id] = [driver.blocks[parent][0], copied]
    blocks = tuple(driver.blocks[child.seq_id])
    piece = SequenceSlice(seq_id=child.seq_id, start=19, num_tokens=1, new_block_ids=blocks, sample=True)
    driver.step(piece, started=[child], copies=((driver.blocks[parent][1], copied),))
    assert decode(driver, parent, known, 6)[20:] == expected


def test_nothing_sick_comes_with_a_copy(drive_each, prompt):
    """The copied block holds NaNs behind the position at which the child begins."""
    driver, tokens = drive_each("even widths"), [token % 150 for token in prompt(20)]
    expected = driver.generate(tokens, tokens=5)[0]
    driver.spoil(159, math.nan)
    parent = driver.start([*tokens, 159, 1, 2])
    driver.step(driver.slice(parent.seq_id, 0, 20, sample=False), started=[parent])
    driver.step(driver.slice(parent.seq_id, 20, 3, sample=False))
    child, copied = driver.start(tokens), driver.free.pop()
    driver.blocks[child.seq_id] = [driver.blocks[parent.seq_id][0], copied]
    blocks = tuple(driver.blocks[child.seq_id])
    piece = SequenceSlice(seq_id=child.seq_id, start=19, num_tokens=1, new_block_ids=blocks, sample=True)
    result = driver.step(piece, started=[child], copies=((driver.blocks[parent.seq_id][1], copied),))
    assert decode(driver, child.seq_id, tokens + result.token_ids[0], 4)[20:] == expected


def test_copies_are_done_in_their_order(drive, prompt):
    driver, tokens = drive("llama"), prompt(16)
    expected = driver.generate(tokens, tokens=1)[0]
    parent, _ = begin(driver, tokens)
    one, two = driver.free[-2:]
    child = driver.start(tokens)
    piece = SequenceSlice(seq_id=child.seq_id, start=15, num_tokens=1, new_block_ids=(two,), sample=True)
    source = driver.blocks[parent][0]
    assert driver.step(piece, started=[child], copies=((source, one), (one, two))).token_ids == [expected]


@pytest.mark.parametrize("length", [15, 16, 17, 40])
def test_a_sequence_that_was_swapped_out_goes_on(drive_each, prompt, length):
    driver, tokens = drive_each("llama", swap_tokens=80), prompt(length)
    assert driver.info.num_swap_blocks == 5
    expected = driver.generate(tokens, tokens=10, **SAMPLED)[0]
    first, known = begin(driver, tokens, **SAMPLED)
    known = decode(driver, first, known, 3)
    blocks = list(driver.blocks[first])
    swapped = [4, 1, 3, 0, 2][: len(blocks)]
    driver.step(released=[first], swap_out=tuple(zip(blocks, swapped, strict=True)))
    driver.free.sort(key=lambda block: block in blocks)
    driver.generate(*(prompt(60, seed) for seed in range(8)), tokens=3)
    again = driver.start(known, prompt_len=length, **SAMPLED)
    piece = driver.slice(again.seq_id, len(known) - 1, 1)
    back = tuple(zip(swapped, piece.new_block_ids[: len(blocks)], strict=True))
    known += driver.step(piece, started=[again], swap_in=back).token_ids[0]
    assert decode(driver, again.seq_id, known, 5)[length:] == expected


def test_blocks_go_out_before_others_come_into_them(drive, prompt):
    """In one step a block is swapped out, filled by a swapped-in one, and the room is taken by a third sequence."""
    driver = drive("llama", swap_tokens=32, kv_cache_tokens=32)
    prompts = [prompt(12, seed) for seed in range(2)]
    expected = driver.generate(*prompts, tokens=4)
    (one, known), (two, other) = begin(driver, prompts[0]), begin(driver, prompts[1])
    (block,), (second,) = driver.blocks[one], driver.blocks[two]
    driver.step(released=[one], swap_out=((block, 0),))
    again = driver.start(known, prompt_len=12)
    piece = SequenceSlice(seq_id=again.seq_id, start=12, num_tokens=1, new_block_ids=(second,), sample=True)
    result = driver.step(piece, started=[again], released=[two], swap_out=((second, 1),), swap_in=((0, second),))
    known += result.token_ids[0]
    driver.blocks[again.seq_id] = [second]
    assert decode(driver, again.seq_id, known, 2)[12:] == expected[0]
    back = driver.start(other, prompt_len=12)
    driver.blocks[back.seq_id] = [block]
    piece = SequenceSlice(seq_id=back.seq_id, start=12, num_tokens=1, new_block_ids=(block,), sample=True)
    other += driver.step(piece, started=[back], swap_in=((1, block),)).token_ids[0]
    assert decode(driver, back.seq_id, other, 2)[12:] == expected[1]


def test_swap_space_that_does_not_fit_is_refused(drive):
    with pytest.raises(ModelLoadError, match=r"swap space .*GiB"):
        drive("llama", swap_tokens=10**13)
    assert drive("llama").info.num_swap_blocks == 0


OUTPUT = 10


@dataclass
class Sequence:
    """A sequence of the random test; `prompt` is all it knew when it began."""

    prompt: list[int]
    sampling: dict
    tokens: list[int]
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    swapped: list[int] = field(default_factory=list)
    seq_id: int | None = None
    new_blocks: list[int] = field(default_factory=list)

    @property
    def done(self):
        return len(self.tokens) == len(self.prompt) + OUTPUT


class RandomEngine:
    """Starts, forks, preempts, swaps and resumes sequences at random."""

    def __init__(self, driver, prompt, seed):
        self.driver, self.prompt, self.random = driver, prompt, random.Random(seed)
        self.references = Counter()
        self.free = list(range(driver.info.num_blocks))
        self.free_swap = list(range(driver.info.num_swap_blocks))
        self.sequences: list[Sequence] = []
        self.done_things = Counter()

    def run(self, steps):
        for _ in range(steps):
            self.step()
        while not all(sequence.done for sequence in self.sequences):
            self.step(add=False)

    def step(self, add=True):
        self.plan = {"released": [], "copies": [], "swap_out": [], "swap_in": [], "started": []}
        running = [each for each in self.sequences if each.seq_id is not None]
        # Copies come first, so their targets may not be blocks that are swapped out in the same step.
        if add and any(each.computed for each in running) and self.random.random() < 0.4:
            self.fork(self.random.choice([each for each in running if each.computed]))
        for sequence in running:
            if sequence.done or self.random.random() < 0.15:
                self.stop(sequence)
        if add and self.random.random() < 0.4:
            self.add(self.prompt(self.random.randint(1, 45), self.random.randint(0, 10**6)))
        slices, work = [], []
        for sequence in self.sequences:
            if sequence.done or self.random.random() < 0.2 or (sequence.seq_id is None and not self.resume(sequence)):
                continue
            piece = self.slice(sequence)
            if piece:
                slices.append(piece)
                work.append(sequence)
        self.submit(slices, work)

    def submit(self, slices, work):
        block_operations = {name: tuple(self.plan.pop(name)) for name in ("copies", "swap_out", "swap_in")}
        released = self.plan.pop("released")
        for seq_id in released:
            self.driver.blocks[seq_id] = []
        result = self.driver.step(*slices, **self.plan, **block_operations, released=released)
        assert not result.errors
        for sequence, piece, new in zip(work, slices, result.token_ids, strict=True):
            sequence.computed += piece.num_tokens
            sequence.tokens += new
            assert len(new) == piece.sample

    def add(self, tokens):
        sampling = {
            "temperature": self.random.choice([0.0, 1.0]),
            "seed": len(self.sequences),
            "frequency_penalty": self.random.choice([0.0, 0.5]),
            "bad_words": self.random.choice([(), [[3], [4, 5]]]),
        }
        self.sequences.append(Sequence(tokens, sampling, list(tokens)))
        return self.sequences[-1]

    def fork(self, parent):
        """A new sequence begins with some of what its parent has computed."""
        length = self.random.randint(1, parent.computed)
        child, whole = self.add(parent.tokens[:length]), (length - 1) // 16
        child.computed = length - 1
        child.blocks = parent.blocks[:whole]
        self.references.update(child.blocks)
        if child.computed % 16:
            child.blocks += self.allocate(1)
            self.plan["copies"].append((parent.blocks[whole], child.blocks[-1]))
        child.new_blocks = list(child.blocks)
        self.start(child)
        self.done_things["fork"] += 1

    def stop(self, sequence):
        """Release a sequence; if it is not done, keep its blocks in the swap space or forget them."""
        self.plan["released"].append(sequence.seq_id)
        sequence.seq_id = None
        computed = -(-sequence.computed // 16)
        if not sequence.done and computed <= len(self.free_swap) and self.random.random() < 0.6:
            sequence.swapped = [self.free_swap.pop() for _ in range(computed)]
            self.plan["swap_out"] += zip(sequence.blocks[:computed], sequence.swapped, strict=True)
            self.done_things["swap"] += 1
        else:
            sequence.computed = 0
            self.done_things["release"] += 1
        self.references.subtract(sequence.blocks)
        self.free += [block for block in sequence.blocks if not self.references[block]]
        sequence.blocks = []

    def resume(self, sequence):
        """Start a new sequence or one that comes back; whether there is room."""
        if len(self.free) < 12:
            return False
        sequence.blocks = self.allocate(len(sequence.swapped))
        sequence.new_blocks = list(sequence.blocks)
        self.plan["swap_in"] += zip(sequence.swapped, sequence.blocks, strict=True)
        # Swap blocks that come in are free from the next step on.
        self.free_swap[:0] = sequence.swapped
        sequence.swapped = []
        self.start(sequence)
        return True

    def start(self, sequence):
        start = self.driver.start(sequence.tokens, prompt_len=len(sequence.prompt), **sequence.sampling)
        sequence.seq_id = start.seq_id
        self.plan["started"].append(start)

    def slice(self, sequence):
        count = self.random.randint(1, len(sequence.tokens) - sequence.computed)
        end = sequence.computed + count
        needed = max(-(-end // 16) - len(sequence.blocks), 0)
        if needed > len(self.free):
            return None
        new = self.allocate(needed)
        sequence.blocks += new
        piece = SequenceSlice(
            seq_id=sequence.seq_id,
            start=sequence.computed,
            num_tokens=count,
            new_block_ids=(*sequence.new_blocks, *new),
            sample=end == len(sequence.tokens),
        )
        sequence.new_blocks = []
        return piece

    def allocate(self, count):
        """Free blocks, those freed last first, so that they are used again at once."""
        blocks = [self.free.pop() for _ in range(count)]
        self.references.update(blocks)
        return blocks


@pytest.mark.parametrize("seed", range(4))
def test_random_plans(drive, prompt, seed):
    """Whatever happens to a sequence, its tokens are those it gets alone."""
    engine = RandomEngine(drive("llama", kv_cache_tokens=1600, swap_tokens=320), prompt, seed)
    engine.run(40)
    assert min(engine.done_things[thing] for thing in ("fork", "swap", "release")) >= 5
    alone = drive("llama")
    for sequence in engine.sequences:
        expected = alone.generate(sequence.prompt, tokens=OUTPUT, **sequence.sampling)[0]
        assert sequence.tokens[len(sequence.prompt) :] == expected
