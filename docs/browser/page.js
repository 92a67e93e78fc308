// The page: a sentence is typed; its phrases are a tree and a group of radio buttons; the words are shaded by what the phrase's label attends to.

import { LONGEST, load, phrases, scores, words } from "./parser.js";

const part = (id) => document.getElementById(id);
const [form, status, shown, sentence, tree, choices, rows] = ["try", "status", "shown", "sentence", "tree", "choices", "rows"].map(part);
const percent = (weight) => `${Math.round(100 * weight)} %`;

function element(kind, text = "", properties = {}) {
  return Object.assign(document.createElement(kind), { textContent: text, ...properties });
}

function name(label) {
  return label.replaceAll("::", " of "); // a phrase that is all of another one
}

function shade(cell, weight) {
  cell.style.setProperty("--weight", `${Math.round(100 * weight)}%`);
}

/** Shade the words by the attention of a phrase's label, mark the phrase's words, and say it in a sentence. */
function choose(tokens, phrase, label, weights) {
  [...sentence.children].forEach((word, k) => {
    shade(word, weights[k + 1]);
    word.className = phrase.first <= k && k <= phrase.last ? "inside" : "";
  });
  const most = tokens.map((token, k) => [weights[k + 1], token]).sort((one, other) => other[0] - one[0]).slice(0, 3);
  const outside = weights[0] + weights[tokens.length + 1];
  const told = most.map(([weight, token]) => `${token} ${percent(weight)}`).join(", ");
  status.textContent = `${name(label)}: the label attends most to ${told}; to the start and end of the sentence ${percent(outside)}.`;
}

const [GAP, LEVEL] = [18, 44]; // pixels between words, and between a phrase and its parts

function drawn(kind, properties, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [key, value] of Object.entries(properties)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

/** Return phrases as a tree: each with its parts, phrases and words (numbers), from left to right. */
function nested(found, count) {
  const inner = (one, other) => other.first <= one.first && one.last <= other.last;
  const nodes = found.map((phrase) => ({ ...phrase, parts: [] }));
  nodes.sort((one, other) => one.first - other.first || other.last - one.last);
  const open = [];
  const top = { first: 0, last: count - 1, parts: [] };
  const within = (word) => [top, ...nodes.filter((node) => node.first <= word && word <= node.last)].at(-1);
  for (const node of nodes) {
    while (open.length && !inner(node, open.at(-1))) open.pop();
    (open.at(-1) ?? top).parts.push(node);
    open.push(node);
  }
  for (let word = 0; word < count; word++) within(word).parts.push(word);
  for (const node of [top, ...nodes]) node.parts.sort((one, other) => (one.first ?? one) - (other.first ?? other));
  return top;
}

/** Draw the tree of the phrases; return the group of each phrase, by its place in `found`. */
function draw(tokens, found, labels) {
  const measure = document.createElement("canvas").getContext("2d");
  measure.font = "14px sans-serif";
  const wide = tokens.map((token) => measure.measureText(token).width);
  let right = GAP;
  const middle = wide.map((width) => (right += width + GAP) - GAP - width / 2);
  const top = nested(found.map((phrase, place) => ({ ...phrase, place })), tokens.length);
  const height = (node) => (typeof node === "number" ? 0 : 1 + Math.max(...node.parts.map(height)));
  const bottom = 24 + LEVEL * (height(top) - 1);
  const size = { width: right, viewBox: `0 0 ${right} ${bottom + 12}`, style: `min-width: ${0.6 * right}px` };
  const canvas = drawn("svg", { ...size, role: "img", "aria-label": "The tree of the phrases" });
  const groups = [];
  const place = (node, depth) => {
    if (typeof node === "number") {
      canvas.append(drawn("text", { x: middle[node], y: bottom }, tokens[node]));
      return [middle[node], bottom - 16];
    }
    const y = 18 + LEVEL * depth;
    const below = node.parts.map((one) => place(one, depth + 1));
    const x = (below[0][0] + below.at(-1)[0]) / 2;
    const group = drawn("g", {});
    const bar = y + 14; // lines turn at it, so that none crosses another phrase
    for (const [to, low] of below) group.append(drawn("path", { d: `M${x} ${y + 5}V${bar}H${to}V${low}` }));
    group.append(drawn("text", { x, y, class: "label" }, name(labels[node.label])));
    canvas.append(group);
    groups[node.place] = group;
    return [x, y - 14];
  };
  for (const part of top.parts) place(part, 0);
  tree.replaceChildren(canvas);
  return groups;
}

function show(tokens, found, { labels, attention }) {
  sentence.replaceChildren(...tokens.map((token) => element("span", token)));
  const groups = draw(tokens, found, labels);
  const mark = (place) => groups.forEach((group, k) => group.classList.toggle("chosen", k === place));
  choices.replaceChildren(element("legend", "Phrases"));
  found.forEach((phrase, k) => {
    const label = labels[phrase.label];
    const button = element("input", "", { type: "radio", name: "phrase", checked: k === 0 });
    button.addEventListener("change", () => { mark(k); choose(tokens, phrase, label, attention[phrase.label]); });
    const line = element("label");
    line.append(button, element("b", ` ${name(label)} `), tokens.slice(phrase.first, phrase.last + 1).join(" "));
    choices.append(line);
  });
  const kinds = [...new Set(found.map((phrase) => phrase.label))];
  const head = element("tr");
  head.append(element("th", "label", { scope: "col" }), ...tokens.map((token) => element("th", token, { scope: "col" })));
  rows.replaceChildren(head, ...kinds.map((kind) => {
    const row = element("tr");
    row.append(element("th", name(labels[kind]), { scope: "row" }), ...tokens.map((_, k) => {
      const cell = element("td", percent(attention[kind][k + 1]));
      shade(cell, attention[kind][k + 1]);
      return cell;
    }));
    return row;
  }));
  shown.hidden = false;
  mark(0);
  choose(tokens, found[0], labels[found[0].label], attention[found[0].label]);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const tokens = words(part("text").value);
  if (!tokens.length || tokens.length > LONGEST) {
    status.textContent = tokens.length ? `${tokens.length} words: type at most ${LONGEST}.` : "Type a sentence.";
    return;
  }
  status.textContent = "Loading the parser, which takes some seconds the first time…";
  try {
    await load();
    const found = await scores(tokens);
    show(tokens, phrases(found.spans), found);
  } catch (error) {
    status.textContent = `The parser could not be loaded: ${error.message}. The site has to come from a server of files, such as python -m http.server.`;
  }
});
part("run").disabled = false;
form.requestSubmit(); // the example, at once; nothing that is typed leaves this computer
