// A textlint rule: no sentence has more than `max` words.
//
// textlint-rule-en-max-word-count ends a sentence at each end of a line, so it misses long sentences
// in wrapped text. This rule joins the lines of a paragraph first. Code counts as one word. Tables
// and code blocks are not checked: they are not paragraphs.
import { split } from "sentence-splitter";

const isWord = (word) => /[\p{L}\p{N}]/u.test(word);

const flatten = (node) => {
  if (node.type === "Code") return "Code";
  if (node.type === "Image") return node.alt ?? "";
  if (node.type === "Break") return " ";
  if (node.children) return node.children.map(flatten).join("");
  return node.type === "Str" ? node.value : "";
};

export default (context, { max = 30 } = {}) => {
  const check = (node) => {
    // The splitter takes "3. Next" for an item of a list: a letter behind the number prevents that.
    const text = flatten(node)
      .replace(/\s+/g, " ")
      .replace(/(\d)\. (?=\p{Lu})/gu, "$1n. ");
    for (const { type, raw } of split(text)) {
      const words = type === "Sentence" ? raw.split(" ").filter(isWord) : [];
      if (words.length > max) {
        const start = words.slice(0, 6).join(" ");
        const message = `${words.length} words in the sentence that begins "${start}"; the limit is ${max}`;
        context.report(node, new context.RuleError(message));
      }
    }
  };
  return { [context.Syntax.Paragraph]: check, [context.Syntax.Header]: check };
};
