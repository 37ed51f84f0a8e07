"""The style of everything that is shown as HTML; colours follow the reader's theme.

Notebooks say their theme in attributes of the page, browsers in a media query: both are heeded. All
of it is under `.lgd`, because a notebook's page is shared with others.
"""

import re

_LIGHT = """--fg:#1f2328;--dim:#5f6872;--line:#d3d9e0;--rail:#b9c2cd;--bg:#fff;--soft:#f4f6f9;
--main:#2563c9;--human:#8a3ea8;--good:#17702f;--goodbg:#e6f6ea;--bad:#b3261e;--badbg:#fdecea;
--warn:#7d5200;--warnbg:#fff3d6;"""
_DARK = """--fg:#e4e8ed;--dim:#9aa4af;--line:#343b44;--rail:#4d5763;--bg:#16191d;--soft:#1f242a;
--main:#6ea8ff;--human:#d49bec;--good:#7fd99a;--goodbg:#16301e;--bad:#ff9a92;--badbg:#3b1d1b;
--warn:#f0c060;--warnbg:#382c10;"""

_RULES = f"""
.lgd {{{_LIGHT} --x:56px; --lane-wide:24px; color:var(--fg); background:var(--bg);
  font:13px/20px system-ui,sans-serif; padding:12px 16px; border-radius:8px; max-width:1000px;
  box-sizing:border-box; container-type:inline-size; text-align:left}}
@media (prefers-color-scheme:dark) {{
  .lgd-file, .lgd-file .lgd,
  body:not([data-jp-theme-light]):not([data-vscode-theme-kind]) .lgd {{{_DARK}}}
  .lgd-file {{background:#16191d}}
}}
[data-jp-theme-light="false"] .lgd, .vscode-dark .lgd, [data-theme="dark"] .lgd {{{_DARK}}}
.lgd-file {{margin:0}}
.lgd-file .lgd {{margin:16px auto}}

.lgd p {{margin:4px 0; overflow-wrap:anywhere}}
.lgd .top {{margin:0 0 10px; font-size:14px}}
.lgd .top .note {{font-size:13px; margin-left:6px}}
.lgd table {{border-collapse:collapse; margin:2px 0; border:0; font-size:13px}}
.lgd th, .lgd td {{text-align:left!important; vertical-align:top; padding:2px 12px 2px 0;
  font-weight:400; border:0; background:none; white-space:normal; color:inherit; max-width:760px}}
.lgd td > table {{margin:-2px 0 0}}
.lgd caption {{caption-side:bottom; text-align:left; padding:2px 0; color:var(--dim)}}
.lgd tr {{background:none!important}}
.lgd th {{color:var(--dim); overflow-wrap:break-word}}
.lgd code, .lgd .lines, .lgd .call {{font:12px/20px ui-monospace,monospace; background:none;
  color:inherit; padding:0}}
.lgd .text, .lgd .lines div, .lgd .call, .lgd .failed {{white-space:pre-wrap;
  overflow-wrap:anywhere; unicode-bidi:isolate}}
.lgd code {{overflow-wrap:anywhere}}
.lgd .note, .lgd .when, .lgd .took, .lgd .index {{color:var(--dim)}}
.lgd summary {{cursor:pointer; overflow-wrap:anywhere}}
.lgd summary::marker {{color:var(--dim)}}
.lgd summary:focus-visible {{outline:2px solid var(--main); border-radius:6px}}
.lgd img {{max-width:min(360px,100%); max-height:260px; border-radius:4px; vertical-align:top;
  margin:2px 0}}

.lgd .row {{position:relative; display:flow-root;
  --here:calc(var(--x) + var(--lane)*var(--lane-wide))}}
.lgd .rail, .lgd .bend {{position:absolute; pointer-events:none;
  left:calc(var(--x) + var(--at)*var(--lane-wide) - 1px)}}
.lgd .rail {{top:0; bottom:0; width:2px; background:var(--rail)}}
.lgd .rail.above {{bottom:auto; height:14px}}
.lgd .rail.below {{top:14px}}
.lgd .bend {{top:0; height:14px; width:var(--lane-wide); box-sizing:border-box;
  border:solid var(--rail); border-width:0 0 2px 2px; border-bottom-left-radius:10px}}
.lgd .head {{position:relative; display:flex; gap:2px 8px; align-items:flex-start; list-style:none;
  padding:4px 8px 4px calc(var(--here) + 14px); border-radius:6px}}
.lgd summary.head::-webkit-details-marker {{display:none}}
.lgd summary.head:hover {{background:color-mix(in srgb,var(--main) 9%,transparent)}}
.lgd .index {{position:absolute; left:0; width:34px; text-align:right;
  font-variant-numeric:tabular-nums}}
.lgd .dot {{position:absolute; left:calc(var(--here) - 6px); top:8px; width:12px; height:12px;
  box-sizing:border-box; border-radius:50%; border:2px solid var(--main); background:var(--bg);
  z-index:1}}
.lgd .latest > .head .dot {{background:var(--main); box-shadow:0 0 0 3px
  color-mix(in srgb,var(--main) 25%,transparent)}}
.lgd .closed .dot {{border-color:var(--rail)}}
.lgd .stem {{display:none}}
.lgd .node {{font-weight:600; overflow-wrap:anywhere; min-width:40px}}
.lgd .node.quiet {{font-weight:400; color:var(--dim)}}
.lgd summary.head .node::after {{content:"›"; display:inline-block; margin-left:7px;
  color:var(--dim); font-weight:400; transition:transform .12s}}
.lgd details[open] > summary.head .node::after {{transform:rotate(90deg)}}
.lgd .when {{margin-left:auto; white-space:nowrap; font-variant-numeric:tabular-nums}}
.lgd .took {{width:60px; flex:none; text-align:right; white-space:nowrap;
  font-variant-numeric:tabular-nums}}
.lgd .badge {{font-size:11px; line-height:18px; margin:1px 0; padding:0 8px; border-radius:9px;
  background:var(--soft); color:var(--dim); overflow-wrap:anywhere}}
.lgd .badge.waits, .lgd .badge.asked, .lgd div.asked {{background:var(--warnbg); color:var(--warn)}}
.lgd .badge.waits {{font-weight:600}}
.lgd .badge.failed, .lgd div.failed {{background:var(--badbg); color:var(--bad)}}
.lgd div.asked, .lgd div.failed {{padding:5px 10px; border-radius:6px; margin:2px 0}}
.lgd .asked th {{color:inherit; opacity:.75}}
.lgd .body {{margin:2px 0 10px calc(var(--here) + 14px); padding:2px 14px 10px;
  border:1px solid var(--line); border-radius:8px; background:var(--bg); overflow-x:auto}}
.lgd h4 {{margin:10px 0 3px; font-size:11px; line-height:16px; font-weight:600; color:var(--dim);
  text-transform:uppercase; letter-spacing:.06em}}
.lgd h4 .note {{text-transform:none; letter-spacing:0; font-weight:400; margin-left:4px}}
.lgd .fact {{display:inline-block; margin-right:18px; overflow-wrap:anywhere}}
.lgd .run {{margin:2px 0 4px calc(var(--here) + 14px); padding-left:8px; border-radius:8px;
  background:var(--soft); --x:14px}}
.lgd .run > summary {{padding:3px 6px; font-weight:600}}
.lgd .run > summary .note {{font-weight:400}}
.lgd .run .index {{display:none}}
.lgd .run .dot {{background:var(--soft)}}

.lgd .new {{background:var(--goodbg); color:var(--good); padding:1px 8px; border-radius:4px}}
.lgd .old {{background:var(--badbg); color:var(--bad); padding:1px 8px; border-radius:4px}}
.lgd del, .lgd ins {{display:block; text-decoration:none}}
.lgd .old + .new {{margin-top:2px}}
.lgd .lines {{border-radius:4px; overflow:hidden}}
.lgd .lines > div {{padding:0 8px; border-radius:0; margin:0}}
.lgd .said {{display:flex; gap:10px; padding:2px 0}}
.lgd .said + .said {{border-top:1px solid var(--line)}}
.lgd .who {{width:60px; flex:none; font-size:12px; color:var(--dim); overflow-wrap:anywhere}}
.lgd .human > .who {{color:var(--human)}}
.lgd .ai > .who {{color:var(--main)}}
.lgd .what {{min-width:0}}
.lgd .call {{color:var(--dim)}}
.lgd .call::before {{content:"→ "}}
.lgd .pairs td, .lgd .pairs th {{padding-right:32px}}
.lgd .pairs th {{font-weight:600; color:var(--fg)}}
.lgd .pairs .alike td {{color:var(--dim)}}
.lgd .pairs .parts td {{color:var(--warn); font-weight:600}}
.lgd .pairs + p {{margin-top:10px}}

.lgd-plots {{max-width:680px; margin-top:20px}}
.lgd-plot {{display:block; margin:0 0 14px; font:12px system-ui,sans-serif; overflow:visible}}
.lgd-plot svg {{overflow:hidden}}
.lgd-plot text {{fill:var(--fg)}}
.lgd-plot .bar {{fill:var(--main)}}
.lgd-plot .note {{fill:var(--dim)}}
.lgd-plot .title {{font-weight:600; font-size:13px}}
.lgd-plot .axis {{stroke:var(--line)}}

@container (max-width:560px) {{
  .lgd .head {{flex-wrap:wrap}}
  .lgd .row {{--lane-wide:16px}}
  .lgd .when, .lgd .took {{display:none}}
  .lgd .body {{margin-left:8px; position:relative; z-index:1}}
  .lgd .said, .lgd section > table > tbody > tr > * {{display:block}}
  .lgd .index {{width:24px}}
  .lgd > .row {{--x:40px}}
}}
"""

STYLE = re.sub(r"\s+", " ", re.sub(r" ?([{};,]) ?", r"\1", re.sub(r"\s+", " ", _RULES))).strip()
