// Runs the script of a report's page without a browser: enough of a document for it, then what it made as JSON.
"use strict";

const fs = require("fs");
const vm = require("vm");

class Element {
  constructor(name) {
    Object.assign(this, { name, attributes: {}, children: [], style: {} });
  }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  getAttribute(name) { return this.attributes[name] ?? null; }
  append(...children) { this.children.push(...children); }
  addEventListener() {}
  getContext() { return { createImageData: (w, h) => ({ data: new Uint8ClampedArray(4 * w * h) }), putImageData() {} }; }
  toDataURL() { return "data:image/png;base64,"; }
  get textContent() {
    return this.children.map((child) => (child instanceof Element ? child.textContent : String(child))).join("");
  }
  set textContent(text) { this.children = [text]; }
  all(name) {
    const inner = this.children.flatMap((child) => (child instanceof Element ? child.all(name) : []));
    return this.name === name ? [this, ...inner] : inner;
  }
}

const page = fs.readFileSync(process.argv[2], "utf-8");
const unescaped = (text) => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");
const files = [...page.matchAll(/<pre hidden data-file="([^"]*)">\n([^<]*)<\/pre>/g)].map(([, name, text]) => {
  const made = new Element("pre");
  made.setAttribute("data-file", name);
  made.append(unescaped(text));
  return made;
});
const place = new Element("div");
const make = (name) => new Element(name);
const document = { createElement: make, createElementNS: (_, name) => make(name), getElementById: () => place,
  querySelectorAll: () => files };
const context = vm.createContext({ document, Element });
vm.runInContext(/<script>([^]*?)<\/script>/.exec(page)[1], context);
// Each cell, paragraph and title on a line, as a reader sees them.
const lines = ["h1", "h2", "h3", "p", "li", "caption", "figcaption", "tr", "pre"].flatMap((name) => place.all(name))
  .map((one) => (one.name === "tr" ? one.children.map((cell) => cell.textContent).join("\t") : one.textContent));
process.stdout.write(JSON.stringify({
  run: JSON.parse(vm.runInContext("JSON.stringify(run)", context)),
  text: lines.join("\n"),
  figures: place.all("figure").map((one) => one.attributes.id),
  title: document.title,
}));
