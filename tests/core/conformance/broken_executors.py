"""Executors with one fault each, as a beginner, a hurried author or a wrong kernel makes them."""

import msgspec

from corelm.testing import FakeExecutor, allowed_tokens, fake_embedding, mask_of
from corelm.testing.executor import fake_next_token


def change(struct, **changes):
    return msgspec.structs.replace(struct, **changes)


class AnswersInTheOrderOfArrival(FakeExecutor):
    def execute(self, plan):
        by_age = sorted(plan.slices, key=lambda item: item.seq_id)
        return super().execute(change(plan, slices=tuple(by_age)))


class LeavesOutWhatIsNotSampled(FakeExecutor):
    def execute(self, plan):
        result = super().execute(plan)
        return change(result, token_ids=[tokens for tokens in result.token_ids if tokens])


class CountsStepsItself(FakeExecutor):
    def execute(self, plan):
        return change(super().execute(plan), step_id=0)


class GivesStrings(FakeExecutor):
    def execute(self, plan):
        result = super().execute(plan)
        return change(result, token_ids=[[str(token) for token in tokens] for tokens in result.token_ids])


class _Careless(FakeExecutor):
    """Samples from `context`, whatever that is, and checks nothing."""

    def _check(self, plan):
        pass

    def _read(self, held, position):
        return super()._read(held, position) if held.blocks[position // self.info.block_size] in self._cache else -1

    def context(self, held, item):
        return [self._read(held, position) for position in range(len(held.tokens))]

    def _compute(self, item, result):
        held = self._held[item.seq_id]
        for position in range(item.start, item.start + item.num_tokens):
            self._write(held, position)
        if not item.sample:
            return []
        token = fake_next_token(self.context(held, item), held.seed)
        held.tokens.append(token)
        return [token]


class AttendsToItsChunkOnly(_Careless):
    def context(self, held, item):
        return held.tokens[item.start :] if item.num_tokens > 1 else super().context(held, item)


class OpensBlocksOneTooLate(_Careless):
    """In decoding only: what a prompt writes is right."""

    def _write(self, held, position):
        decoding = position >= held.prompt_len and position == len(held.tokens) - 1
        super()._write(held, position - (decoding and position % self.info.block_size == 0))


class ReadsTheRestOfTheBlock(_Careless):
    def context(self, held, item):
        rest = -len(held.tokens) % self.info.block_size
        last = self._cache[held.blocks[(len(held.tokens) - 1) // self.info.block_size]]
        return super().context(held, item) + [token for token in last[self.info.block_size - rest :] if token >= 0]


class TrustsEveryRelease(FakeExecutor):
    def _apply(self, plan):
        for seq_id in plan.released:
            self._held[seq_id]
        super()._apply(plan)


class ForgetsTooMuch(FakeExecutor):
    def _apply(self, plan):
        if plan.released and plan.slices:
            for held in self._held.values():
                held.seed += 1
        super()._apply(plan)


class SharesOneGenerator(FakeExecutor):
    draws = 0

    def execute(self, plan):
        for item in plan.slices:
            held = self._held.get(item.seq_id)
            if held is not None and not held.sampling.greedy:
                self.draws += 1
                held.seed += self.draws
        return super().execute(plan)


class IgnoresSeeds(FakeExecutor):
    def _apply(self, plan):
        super()._apply(plan)
        for held in self._held.values():
            held.seed = 0


class DrawsByStepsSinceTheStart(FakeExecutor):
    def _compute(self, item, result):
        held = self._held[item.seq_id]
        held.drawn = getattr(held, "drawn", -1) + item.sample
        seed, held.seed = held.seed, held.seed and held.seed + held.drawn
        try:
            return super()._compute(item, result)
        finally:
            held.seed = seed


class IgnoresCopies(_Careless):
    def _apply(self, plan):
        super()._apply(change(plan, copies=()))


class CopiesAllAtOnce(_Careless):
    def _apply(self, plan):
        before = {block: list(tokens) for block, tokens in self._cache.items()}
        super()._apply(plan)
        for source, target in plan.copies:
            self._cache[target] = list(before.get(source, [-1] * self.info.block_size))


class SwapsTooLate(_Careless):
    def execute(self, plan):
        result = super().execute(change(plan, swap_out=()))
        super()._apply(change(plan, started=(), slices=(), released=(), copies=(), swap_in=()))
        return result


class ComputesSharedBlocksAnew(_Careless):
    """Writes its own tokens over a beginning that it shares: harmless until one of them is wrong."""

    def _compute(self, item, result):
        held = self._held[item.seq_id]
        if held.computed is None and item.start:
            for position in range(item.start):
                self._cache[held.blocks[position // self.info.block_size]][position % self.info.block_size] = 0
        held.computed = item.start + item.num_tokens
        return super()._compute(item, result)


class RanksFromZero(FakeExecutor):
    def execute(self, plan):
        result = super().execute(plan)
        logprobs = {
            seq_id: [change(entry, rank=entry.rank - 1) for entry in entries]
            for seq_id, entries in result.logprobs.items()
        }
        return change(result, logprobs=logprobs)


class ReportsLogits(FakeExecutor):
    def execute(self, plan):
        result = super().execute(plan)
        logprobs = {
            seq_id: [
                change(entry, logprob=entry.logprob + 9, top_logprobs=tuple(value + 9 for value in entry.top_logprobs))
                for entry in entries
            ]
            for seq_id, entries in result.logprobs.items()
        }
        return change(result, logprobs=logprobs)


class ForgetsWhatChunksSay(FakeExecutor):
    def execute(self, plan):
        result = super().execute(plan)
        sampled = {item.seq_id for item in plan.slices if item.sample}
        kept = {seq_id: entries for seq_id, entries in result.prompt_logprobs.items() if seq_id in sampled}
        return change(result, prompt_logprobs=kept)


class KnowsTokensTooLate(FakeExecutor):
    """Says that two steps may be in flight and computes the first only when it is collected."""

    def submit(self, plan):
        known = {seq_id: len(held.tokens) for seq_id, held in self._held.items()}
        for item in plan.slices:
            end = item.start + item.num_tokens
            if end > known.get(item.seq_id, end):
                raise IndexError(f"token {end - 1} is not known yet")
        return super().submit(plan)


class ShutsDownOnce(FakeExecutor):
    def shutdown(self):
        super().shutdown()
        del self._held


class FreesWhatItHasNotLoaded(FakeExecutor):
    def load(self, progress):
        info = super().load(progress)
        self.weights = []
        return info

    def shutdown(self):
        self.weights.clear()


class IsAlwaysHealthy(FakeExecutor):
    def check_health(self):
        pass


class HasNoErrorOfItsOwn(FakeExecutor):
    """Given a context for its model, it lets the operating system's error through."""

    def load(self, progress):
        raise FileNotFoundError("no such file: config.json")


class TakesAllMemory(FakeExecutor):
    def load(self, progress):
        return change(super().load(progress), num_blocks=10_000)


class ReportsNothing(FakeExecutor):
    def load(self, progress):
        return change(super().load(progress), block_size=0)


class ReturnsItsInfoAsADictionary(FakeExecutor):
    def load(self, progress):
        return msgspec.structs.asdict(super().load(progress))


class AppliesTheTemperatureFirst(FakeExecutor):
    def execute(self, plan):
        result = super().execute(plan)
        for seq_id, entries in result.logprobs.items():
            temperature = self._held[seq_id].sampling.temperature or 1.0
            entries[:] = [
                change(entry, top_logprobs=tuple(value / temperature for value in entry.top_logprobs))
                for entry in entries
            ]
        return result


class EmbedsItsChunkOnly(FakeExecutor):
    def _context(self, held, end):
        context = super()._context(held, end)
        return context[held.computed_before :] if held.embed else context

    def _compute(self, item, result):
        self._held[item.seq_id].computed_before = item.start
        return super()._compute(item, result)


class EmbedsEveryChunk(FakeExecutor):
    def execute(self, plan):
        result = super().execute(plan)
        embeds = [item.seq_id for item in plan.slices if self._held[item.seq_id].embed]
        return change(result, embeddings=dict.fromkeys(embeds, fake_embedding([])) | result.embeddings)


class ForgetsToNormalise(FakeExecutor):
    def execute(self, plan):
        result = super().execute(plan)
        return change(result, embeddings={seq_id: bytes(len(data)) for seq_id, data in result.embeddings.items()})


class EmbedsInDoublePrecision(FakeExecutor):
    def execute(self, plan):
        result = super().execute(plan)
        return change(result, embeddings={seq_id: 2 * data for seq_id, data in result.embeddings.items()})


class EmbedsTheLastToken(FakeExecutor):
    def _context(self, held, end):
        return super()._context(held, end)[-1:]


class DeclaresEmbeddingsOfNoSize(FakeExecutor):
    def load(self, progress):
        return change(super().load(progress), embedding_size=0)


class _ChangesSlices(FakeExecutor):
    def execute(self, plan):
        return super().execute(change(plan, slices=tuple(map(self.changed, plan.slices))))


class IgnoresMasks(_ChangesSlices):
    def changed(self, item):
        return change(item, allowed=None)


class ReadsBitsFromTheOtherEnd(_ChangesSlices):
    def changed(self, item):
        if item.allowed is None:
            return item
        allowed = [8 * (token // 8) + 7 - token % 8 for token in allowed_tokens(item.allowed)]
        return change(item, allowed=mask_of((min(token, 257) for token in allowed), 258))


class KeepsMasks(_ChangesSlices):
    def load(self, progress):
        self.masks = {}
        return super().load(progress)

    def changed(self, item):
        self.masks[item.seq_id] = item.allowed or self.masks.get(item.seq_id)
        return change(item, allowed=self.masks[item.seq_id])


class RaisesWhereNothingIsAllowed(FakeExecutor):
    def execute(self, plan):
        result = super().execute(plan)
        if result.errors:
            raise ValueError(*result.errors.values())
        return result


class ForgetsForcedTokens(_ChangesSlices):
    def changed(self, item):
        return change(item, forced=())


class DrawsAsIfForcedTokensWereNone(_ChangesSlices):
    def changed(self, item):
        if item.forced and self._held[item.seq_id].seed:
            self._held[item.seq_id].seed += 1
        return item
