// The page: a sentence is typed; its phrases are a group of radio buttons; the words are shaded by what the phrase's label attends to.

import { LONGEST, load, phrases, scores, words } from "./parser.js";

const part = (id) => document.getElementById(id);
const [form, status, shown, sentence, choices, rows] = ["try", "status", "shown", "sentence", "choices", "rows"].map(part);
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

function show(tokens, found, { labels, attention }) {
  sentence.replaceChildren(...tokens.map((token) => element("span", token)));
  choices.replaceChildren(element("legend", "Phrases"));
  found.forEach((phrase, k) => {
    const label = labels[phrase.label];
    const button = element("input", "", { type: "radio", name: "phrase", checked: k === 0 });
    button.addEventListener("change", () => choose(tokens, phrase, label, attention[phrase.label]));
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
status.textContent = "Nothing that you type leaves this computer.";
