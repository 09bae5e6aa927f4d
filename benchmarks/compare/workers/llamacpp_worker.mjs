// llama.cpp through node-llama-cpp, with the protocol of serving.py: llamacpp_worker.mjs FOLDER MODEL
// FOLDER is where npm installed the package.
import {readFileSync} from "node:fs";
import {availableParallelism} from "node:os";
import {createInterface} from "node:readline";
import {pathToFileURL} from "node:url";

const [folder, modelPath] = process.argv.slice(2);
const packageFolder = `${folder}/node_modules/node-llama-cpp`;
const {version} = JSON.parse(readFileSync(`${packageFolder}/package.json`));
const {getLlama, LlamaLogLevel} = await import(pathToFileURL(`${packageFolder}/dist/index.js`).href);

const BATCH_TOKENS = 512;
const SCORED_AT_ONCE = 64;

const now = () => performance.now() / 1000;
const write = (answer) => process.stdout.write(JSON.stringify(answer) + "\n");

const llama = await getLlama({gpu: false, build: "never", logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath});

let context = null;
let sequences = [];

/** As many sequences as asked for, each with room for `length` tokens. They keep their tokens while the shape fits. */
async function sequencesFor(count, length) {
    if (sequences.length !== count || context.contextSize < length) {
        await context?.dispose();
        context = await model.createContext({
            sequences: count,
            contextSize: length,
            batchSize: BATCH_TOKENS,
            threads: availableParallelism(),
        });
        sequences = Array.from({length: count}, () => context.getSequence());
    }
    return sequences;
}

/** Follow one prompt; what the sequence holds of its beginning is not computed again. */
async function follow(sequence, prompt, maxTokens, onFirst) {
    await sequence.adaptStateToTokens(prompt.slice(0, -1), false);
    let tokens = 0;
    for await (const _ of sequence.evaluate(prompt.slice(sequence.nextTokenIndex), {temperature: 0, yieldEogToken: true})) {
        if (++tokens === 1)
            onFirst();
        if (tokens === maxTokens)
            break;
    }
    return tokens;
}

async function generate(prompts, maxTokens) {
    const length = Math.max(...prompts.map((prompt) => prompt.length)) + maxTokens;
    const chosen = await sequencesFor(prompts.length, length);
    const begin = now();
    let waiting = prompts.length;
    let first = 0;
    const onFirst = () => {
        if (--waiting === 0)
            first = now() - begin;
    };
    const counts = await Promise.all(prompts.map((prompt, i) => follow(chosen[i], prompt, maxTokens, onFirst)));
    return {
        seconds: now() - begin,
        first_token_seconds: first,
        tokens: counts.reduce((sum, count) => sum + count, 0),
    };
}

/** Logarithm of the softmax at `token`, from its logit, the largest one and the sum of exp(logit - largest). */
function logProbability({logits, totalLogitWeight}, token) {
    return logits.get(token) - Math.max(...logits.values()) - Math.log(totalLogitWeight);
}

async function scoreOne(prompt) {
    const [sequence] = await sequencesFor(1, prompt.length);
    await sequence.clearHistory();
    const logprobs = [];
    for (let from = 0; from < prompt.length - 1; from += SCORED_AT_ONCE) {
        const piece = prompt.slice(from, Math.min(from + SCORED_AT_ONCE, prompt.length - 1));
        const outputs = await sequence.controlledEvaluate(piece.map((token, i) => [token, {
            generateNext: {
                logits: {filter: {tokens: [prompt[from + i + 1]], includeTop: 1}},
                totalLogitWeight: true,
                options: {temperature: 0},
            },
        }]));
        piece.forEach((_, i) => logprobs.push(logProbability(outputs[i].next, prompt[from + i + 1])));
    }
    return logprobs;
}

async function score(prompts) {
    const logprobs = [];
    for (const prompt of prompts)
        logprobs.push(await scoreOne(prompt));
    return {logprobs};
}

write({version, details: `llama.cpp ${llama.llamaCppRelease.release}`});
for await (const line of createInterface({input: process.stdin})) {
    const {work, prompts, max_tokens: maxTokens} = JSON.parse(line);
    try {
        write(work === "generate" ? await generate(prompts, maxTokens) : await score(prompts));
    } catch (error) {
        write({error: String(error)});
    }
}
process.exit(0);
