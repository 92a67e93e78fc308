// The English parser in the browser: words, ids, scores by ONNX Runtime Web, and the best phrases. `phrasemodels.inference.export` writes what it reads.

import * as ort from "./ort.wasm.bundle.min.mjs";

const HERE = new URL(".", import.meta.url);
const [UNKNOWN, BEGIN, END] = [1, 2, 3]; // ids, as in phrasemodels/layers/blocks.py
const LETTERS = 20; // of a longer word: the first ten and the last ten, as in phrasemodels/parsing/ids.py
const GROUP = 1; // the label that groups words below a phrase; label 0 is none
export const LONGEST = 60; // words

const WORD = /https?:\/\/\S+|\d+(?:[.,:]\d+)*|[\p{L}\p{M}\p{N}]+(?:['’][\p{L}\p{M}]+)*|\.{3}|[!?]+|\S/gu;
const CLITIC = /(?=n['’]t$)|(?=['’](?:s|re|ve|ll|d|m)$)/i;

/** Return the words of a sentence: punctuation, hyphens and clitics apart. Simpler than `phrasemodels/parsing/words.py`. */
export function words(text) {
  const pieces = (text.match(WORD) ?? []).flatMap((piece) => (/^cannot$/i.test(piece) ? [piece.slice(0, 3), piece.slice(3)] : piece.split(CLITIC)));
  return pieces.filter((piece) => piece);
}

let loaded;

/** Load the graph and the vocabularies, once; after an error they are asked for again. */
export function load() {
  loaded ??= fetched().catch((error) => {
    loaded = undefined;
    throw error;
  });
  return loaded;
}

async function fetched() {
  ort.env.wasm.numThreads = 1; // more need headers that a plain server of files does not send
  ort.env.wasm.wasmPaths = { wasm: new URL("ort-wasm-simd-threaded.wasm", HERE).href };
  const [session, vocabularies] = await Promise.all([
    ort.InferenceSession.create(new URL("model.onnx", HERE).href, { executionProviders: ["wasm"] }),
    fetch(new URL("vocabularies.json", HERE)).then((answer) => answer.json()),
  ]);
  const ids = (entries) => new Map(entries.map((entry, id) => [entry, id]));
  return { session, labels: vocabularies.labels, words: ids(vocabularies.words), characters: ids(vocabularies.characters) };
}

function numbers(values, shape) {
  return new ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
}

function letters(word, known) {
  let all = [...word];
  if (all.length > LETTERS) all = [...all.slice(0, LETTERS / 2), ...all.slice(-LETTERS / 2)];
  const ids = all.map((letter) => known.get(letter) ?? UNKNOWN);
  return [...ids, ...Array(LETTERS - ids.length).fill(0)];
}

/** Return what each label attends to, [label][START, words, STOP], and the scores of labelled spans, [i][j][label], of words. */
export async function scores(tokens) {
  const { session, labels, words: forms, characters } = await load();
  const row = (id) => [id, ...Array(LETTERS - 1).fill(0)];
  const n = tokens.length;
  const read = {
    words: numbers([BEGIN, ...tokens.map((token) => forms.get(token.toLowerCase()) ?? UNKNOWN), END], [n + 2]),
    characters: numbers([...row(BEGIN), ...tokens.flatMap((token) => letters(token, characters)), ...row(END)], [n + 2, LETTERS]),
  };
  const found = await session.run(read);
  const part = (values, size) => Array.from({ length: values.length / size }, (_, k) => values.slice(k * size, (k + 1) * size));
  return { labels, attention: part(found.attention.data, n + 2), spans: part(part(found.scores.data, labels.length), n) };
}

/** Return the phrases of the binary tree with the best sum of scores (CKY), outer ones first: {label, first, last}, words from 0. */
export function phrases(spans) {
  const n = spans.length;
  const best = spans.map((row) => row.map(() => null)); // {score, label, cut} of words i..j
  for (let width = 1; width <= n; width++) {
    for (let i = 0, j = width - 1; j < n; i++, j++) {
      const own = spans[i][j];
      let label = width === n ? GROUP + 1 : 0; // a sentence has a label, and neither it nor a word is a group
      for (let other = label + 1; other < own.length; other++) {
        if (own[other] > own[label] && !(other === GROUP && width === 1)) label = other;
      }
      let [cut, inside] = [-1, width === 1 ? 0 : -Infinity];
      for (let k = i; k < j; k++) {
        const sum = best[i][k].score + best[k + 1][j].score;
        if (sum > inside) [cut, inside] = [k, sum];
      }
      best[i][j] = { score: own[label] + inside, label, cut };
    }
  }
  const found = [];
  const walk = (i, j) => {
    const { label, cut } = best[i][j];
    if (label > GROUP) found.push({ label, first: i, last: j });
    if (cut >= 0) {
      walk(i, cut);
      walk(cut + 1, j);
    }
  };
  walk(0, n - 1);
  return found;
}
