// The script of the page on a document of stubs: what it shows after each change of the text.
const fs = require("fs"), page = fs.readFileSync(process.argv[2], "utf8");
const ids = {};
const node = () => ({ value: "", textContent: "", style: {}, dataset: {}, children: [], on: {},
  clientWidth: 300, append(...more) { this.children.push(...more); },
  replaceChildren(...all) { this.children = all; },
  addEventListener(name, call) { this.on[name] = call; } });
globalThis.document = { body: node(), createElement: node,
  getElementById: id => ids[id] ??= Object.assign(node(), { id }) };
globalThis.Option = function (name) { return Object.assign(node(), { value: name }); };
globalThis.addEventListener = () => {};
const $ = document.getElementById, replies = [];
const drawn = { count: "7", length: 1, microseconds: 1, scheme: "uniform", canonical: ["a"], rows: [["a"]], bars: [[0, 1, 1]] };
globalThis.fetch = (path, sent) => new Promise(done => {
  const reply = (ok, found) => done({ ok, json: async () => found });
  if (!sent) reply(true, { tokenizers: ["t"], models: ["t"], longest: 9, schemes: [{ name: "uniform", example: "uniform", strength: null }] });
  else if (path.endsWith("draw")) JSON.parse(sent.body).text ? reply(true, drawn) : reply(false, { error: "type a text" });
  else if (path.endsWith("attack")) reply(true, [{ tokens: ["a"], shares: [0.9, 0.1], won: false }, { tokens: ["a"], shares: [0.4, 0.6], won: true }]);
  else replies.push(() => reply(true, { rows: [["a"]], shares: [[0.9, 0.1]] }));
});
$("text").value = "one"; $("options").value = " a\n b";
const wait = () => new Promise(done => setTimeout(done, 5));
eval(page.split("<script>")[1].split("</script>")[0]);
(async () => {
  const seen = [], look = () => seen.push([$("count-a").textContent, $("shares-a").children.length, $("error-a").textContent]);
  await wait(); replies.shift()(); await wait(); look();
  $("text").value = "two"; $("text").on.input(); await wait(); look();
  $("ask").on.click(); await wait(); $("text").value = "three"; $("text").on.input();
  replies.shift()(); await wait(); look();
  $("text").value = ""; $("text").on.input(); await wait(); look();
  $("text").value = "four"; $("compare").checked = true; $("compare").on.change();
  await wait(); replies.splice(0).forEach(reply => reply()); await wait(); look();
  seen.push([$("count-b").textContent, $("shares-b").children.length, $("side-b").hidden]);
  $("attack").on.click(); await wait();
  seen.push([$("verdict-a").textContent, $("worst-a").children.length, $("shares-a").children.length]);
  console.log(JSON.stringify(seen));
})();
