"""The page's style sheet: light and dark, phone width, print."""

CSS = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#57606a;--rule:#d0d7de;--panel:#f6f8fa;--good:#116329;
--bad:#a40e26;--found:#0550ae;--less:#7d5a00;--accent:#0550ae;--g0:#24292f;--g1:#b5460f;--g2:#6639ba;--g3:#0550ae;--g4:#116329;
--g5:#a40e26;--g6:#7d5a00;--g7:#99286e}
@media (prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--soft:#9ea7b3;--rule:#3d444d;--panel:#161b22;
--good:#56d364;--bad:#ff7b72;--found:#79c0ff;--less:#e3b341;--accent:#79c0ff;--g0:#e6edf3;--g1:#ffa657;--g2:#d2a8ff;--g3:#79c0ff;
--g4:#56d364;--g5:#ff7b72;--g6:#e3b341;--g7:#f778ba}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1180px;padding:1rem;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}h3{font-size:1rem;margin:1rem 0 .3rem}
a{color:var(--accent)}
p,li{max-width:75ch}.soft,.soft *{color:var(--soft)}
nav a{margin-right:1em}
.scroll{overflow-x:auto;border:1px solid var(--rule);border-radius:6px}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .5rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule);vertical-align:top}
th.w,td.w{text-align:left}
#table th:first-child,#table td:first-child{position:sticky;left:0;background:var(--bg);text-align:left}
thead th{background:var(--panel)!important;vertical-align:bottom}
thead button{font:inherit;font-weight:600;color:inherit;background:none;border:0;padding:0;cursor:pointer;
text-align:inherit}
thead button::after{content:" \\2195";color:var(--soft)}
th[aria-sort=ascending] button::after{content:" \\2191"}th[aria-sort=descending] button::after{content:" \\2193"}
tr.first td,tr.first th{border-top:2px solid var(--fg)}
tr.one td,tr.one th{color:var(--soft)}
tbody th{font-weight:600}#table td:nth-child(2){white-space:normal;min-width:11rem;max-width:16rem}
.good{color:var(--good)}.bad{color:var(--bad)}.found{color:var(--found)}.less{color:var(--less)}.open,.untested{color:var(--soft)}
.controls{display:flex;flex-wrap:wrap;gap:.6rem 1.2rem;align-items:end;margin:.5rem 0}
input,select,button.plain{font:inherit;color:var(--fg);background:var(--bg);border:1px solid var(--soft);
border-radius:4px;padding:.15rem .4rem;max-width:100%}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
figure{margin:0}.pictures{display:flex;flex-wrap:wrap;gap:1rem}.pictures>figure{margin:0;flex:1 1 480px;min-width:0}
figcaption{color:var(--soft);font-size:13px}
svg{max-width:100%;height:auto;display:block}
svg text{fill:var(--fg);font:11px system-ui,sans-serif}svg .tick{fill:var(--soft)}svg .title{fill:var(--soft)}
.axis{stroke:var(--fg)}.grid{stroke:var(--rule);stroke-width:.6}.zero{stroke:var(--soft);stroke-dasharray:4 3}
.interval{stroke:currentColor;stroke-width:2.2}.mark{fill:currentColor}
.paper{fill:var(--bg);stroke:var(--fg);stroke-width:1.2;fill-opacity:.6}
.curve,.front{fill:none;stroke:currentColor;stroke-width:1.4}.front{stroke:var(--soft);stroke-dasharray:5 4}
.late{fill:var(--panel);stroke:var(--rule)}.band{fill:currentColor;fill-opacity:.1}
.series .dot{fill:currentColor;fill-opacity:0}
.series:hover .dot,.series.on .dot{fill-opacity:1}.series:hover .curve,.series.on .curve{stroke-width:3}
svg.picking .series:not(.on){opacity:.15}
.key{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin:.2rem 0;padding:0}
.key li::before{content:"\\25CF";margin-right:.3em}
.hover:hover .interval{stroke-width:4}.point .dot{fill:currentColor}
.g0{color:var(--g0)}.g1{color:var(--g1)}.g2{color:var(--g2)}.g3{color:var(--g3)}.g4{color:var(--g4)}.g5{color:var(--g5)}
.g6{color:var(--g6)}.g7{color:var(--g7)}
.best{color:var(--bad)}.better{color:var(--found)}.rest{color:var(--soft)}.bar{fill:currentColor}
.series.rest{opacity:.5}svg .halo{fill:var(--fg);stroke:var(--bg);stroke-width:4;paint-order:stroke;pointer-events:none}
.slices{display:grid;grid-template-columns:repeat(auto-fill,minmax(280px,1fr));gap:1rem}
.slices svg{width:100%}th.wrap{white-space:normal;min-width:9rem}
td.note{white-space:normal;min-width:10rem;max-width:22rem}.scroll>svg{max-width:none}
details{border-top:1px solid var(--rule);padding:.3rem 0}summary{cursor:pointer}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;font-size:13px;margin:.3rem 0}dd{margin:0}
pre{white-space:pre-wrap;background:var(--panel);padding:.4rem;border-radius:4px;font-size:12px;margin:.2rem 0}
.heat td{--h:0;background:color-mix(in srgb,var(--found) calc(var(--h)*1%),transparent)}
.maps{display:grid;grid-template-columns:repeat(auto-fill,minmax(130px,1fr));gap:.6rem}
.maps figure{margin:0}.maps rect{fill:var(--found)}.maps svg{width:100%;background:var(--panel)}
.log{display:none}.uselog .log{display:block}.uselog .linear{display:none}
[hidden]{display:none!important}
@media (max-width:600px){body{padding:.6rem;font-size:14px}svg text{font-size:16px}
#table td:nth-child(2){min-width:7rem}dl{grid-template-columns:1fr}dt{color:var(--soft)}}
@media print{:root{color-scheme:light;--bg:#fff;--fg:#000;--soft:#444;--rule:#bbb;--panel:#fff}
.controls,nav{display:none}.scroll{overflow:visible;border:0}body{max-width:none;font-size:10px}
#table table{font-size:7px}#table th,#table td{padding:1px 2px;white-space:normal}figure,tr{break-inside:avoid}}
"""
