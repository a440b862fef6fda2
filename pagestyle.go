package cart

// pageStyle is the style of the page of GET /workers.
const pageStyle = `
:root {
  --back: #f4f6f7; --card: #fff; --text: #17212b; --dim: #5a6875; --line: #dde3e7; --track: #e4eaed;
  --main: #0d7d74; --soft: #bfe3df; --warn: #9a5b00; --warnBack: #fff3dc; --bad: #b3261e; --badBack: #fde8e6; --okBack: #e2f4f1;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #10161b; --card: #182027; --text: #e4eaee; --dim: #9aa8b3; --line: #2a353e; --track: #26313a;
    --main: #45c4b7; --soft: #1f4f4b; --warn: #f0b959; --warnBack: #33270f; --bad: #ff8a80; --badBack: #3b1c1a; --okBack: #12332f;
  }
}
* { box-sizing: border-box; margin: 0; }
[hidden] { display: none !important; }
body {
  background: var(--back); color: var(--text); font: 14px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif;
  max-width: 1280px; margin: 0 auto; padding: 14px 18px; font-variant-numeric: tabular-nums;
}
header { display: flex; flex-wrap: wrap; align-items: center; gap: 8px; margin-bottom: 12px; }
h1 { font-size: 20px; letter-spacing: .06em; display: flex; align-items: center; gap: 7px; margin-right: 6px; }
h1 svg { width: 24px; height: 24px; fill: none; stroke: var(--main); stroke-width: 1.8; stroke-linecap: round; }
h2 { font-size: 12px; font-weight: 600; letter-spacing: .03em; color: var(--dim); margin-bottom: 8px; }
.chip { border: 1px solid var(--line); background: var(--card); border-radius: 99px; padding: 2px 10px; overflow-wrap: anywhere; }
.chip:empty { display: none; }
.gap { flex: 1; }
#age { color: var(--dim); }
#age::before {
  content: ""; display: inline-block; width: 8px; height: 8px; border-radius: 50%; margin-right: 6px; background: var(--main);
}
.stale #age::before { background: var(--bad); }
.paused #age::before { background: var(--warn); }
button {
  font: inherit; color: inherit; background: var(--card); border: 1px solid var(--line); border-radius: 7px; padding: 4px 12px;
  min-height: 32px; cursor: pointer;
}
button:hover { border-color: var(--main); }
button[aria-pressed=true] { background: var(--soft); border-color: var(--main); }
:focus-visible { outline: 2px solid var(--main); outline-offset: 2px; }
main { display: grid; gap: 12px; }
main > section, .three > section {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 14px; min-width: 0;
}
#tiles {
  background: none; border: 0; padding: 0; display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(176px, 1fr));
}
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 9px 14px; min-width: 0; }
.tile b { display: block; font-size: 23px; line-height: 1.25; font-weight: 600; }
.tile span, .note { color: var(--dim); font-size: 12.5px; }
.tile span { display: block; }
.tile .bar { margin-top: 4px; }
.verdict { border-radius: 10px; padding: 9px 14px; font-size: 15px; background: var(--okBack); overflow-wrap: anywhere; }
.verdict:empty { display: none; }
.verdict p + p { margin-top: 3px; }
.verdict.warn { background: var(--warnBack); }
.verdict.bad, noscript .verdict { background: var(--badBack); }
.verdict .warn { color: var(--warn); }
.verdict .bad { color: var(--bad); }
table { width: 100%; border-collapse: collapse; }
th { text-align: left; font-size: 12px; font-weight: 500; color: var(--dim); padding: 0 10px 5px 0; white-space: nowrap; }
td { padding: 6px 10px 6px 0; border-top: 1px solid var(--line); vertical-align: middle; }
tbody th { font-size: 14px; color: var(--text); border-top: 1px solid var(--line); padding: 6px 10px 6px 0; }
th:last-child, td:last-child { padding-right: 0; }
.n { text-align: right; }
.url { overflow-wrap: anywhere; white-space: normal; }
.why { color: var(--dim); font-size: 12.5px; overflow-wrap: anywhere; max-width: 34ch; }
.state { font-weight: 600; color: var(--main); white-space: nowrap; }
.state.bad { color: var(--bad); }
.state.warn { color: var(--warn); }
.bar { display: block; height: 7px; border-radius: 4px; background: var(--track); overflow: hidden; min-width: 70px; }
.bar i { display: block; height: 100%; width: 0; border-radius: 4px; background: var(--main); }
.bar.warn i { background: var(--warn); }
.bar.bad i { background: var(--bad); }
.with { display: grid; grid-template-columns: 1fr auto; align-items: center; gap: 8px; white-space: nowrap; }
tr.down .url, tr.gone .url { color: var(--dim); }
.stale main { opacity: .55; }
.three { display: grid; gap: 12px; grid-template-columns: 1fr 1fr 1.35fr; }
ul, ol { list-style: none; padding: 0; }
.bars li { display: grid; grid-template-columns: 108px 1fr 88px; gap: 8px; align-items: center; padding: 3px 0; }
.bars li > span:first-child { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.bars li > span:last-child { text-align: right; }
#known { display: flex; align-items: flex-end; gap: 3px; height: 104px; padding-bottom: 18px; position: relative; }
#known div { flex: 1; height: 100%; display: flex; align-items: flex-end; position: relative; }
#known i { display: block; width: 100%; background: var(--soft); border-radius: 3px 3px 0 0; min-height: 2px; }
#known .enough i { background: var(--main); }
#known span {
  position: absolute; bottom: -18px; left: 0; right: 0; text-align: center; font-size: 11px; color: var(--dim);
  white-space: nowrap;
}
#last li {
  display: grid; grid-template-columns: 44px 108px 1fr auto; gap: 8px; padding: 2px 0; font-size: 12.5px; white-space: nowrap;
}
#last li span { overflow: hidden; text-overflow: ellipsis; }
#last li span:first-child { color: var(--dim); text-align: right; }
footer { color: var(--dim); font-size: 12px; margin-top: 12px; }
kbd {
  border: 1px solid var(--line); border-radius: 4px; padding: 0 5px; font: inherit; background: var(--card); margin-left: 4px;
}
@media (max-width: 960px) { .three { grid-template-columns: 1fr; } }
@media (max-width: 720px) {
  body { padding: 10px; }
  #tiles { grid-template-columns: 1fr 1fr; gap: 8px; }
  .tile b { font-size: 19px; }
  thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
  tbody, table { display: block; }
  tbody tr {
    display: grid; grid-template-columns: repeat(6, 1fr); gap: 5px 12px; padding: 9px 0; border-top: 1px solid var(--line);
  }
  tbody td, tbody th, tbody td.n { border: 0; padding: 0; text-align: left; min-width: 0; }
  tbody th { grid-column: 1 / -1; }
  tbody td { grid-column: span 3; }
  tbody td.n { grid-column: span 2; }
  td::before { content: attr(data-name); display: block; font-size: 11.5px; color: var(--dim); }
  button { min-height: 40px; }
  #last li { grid-template-columns: 34px 1fr auto; row-gap: 0; padding: 4px 0; }
  #last li span:nth-child(3) { grid-column: 2 / -1; grid-row: 2; color: var(--dim); }
}
@media (prefers-reduced-motion: no-preference) { .bar i, #known i { transition: width .4s, height .4s; } }
`
