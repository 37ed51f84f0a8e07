# ruff: noqa: E501
"""The style of everything that is shown as HTML; colours follow the reader's theme.

Notebooks say their theme in attributes of the page, browsers in a media query: both are heeded.
"""

_LIGHT = "--fg:#1f2328;--dim:#626a73;--line:#d5dae0;--bg:#fff;--soft:#f4f6f8;--main:#2563c9;--good:#1a7f37;--goodbg:#e3f6e8;--bad:#b3261e;--badbg:#fdeaea;--warn:#8a5a00;--warnbg:#fff3d6"
_DARK = "--fg:#e4e8ed;--dim:#9aa4af;--line:#3a424c;--bg:#16191d;--soft:#20252b;--main:#6ea8ff;--good:#6fd08c;--goodbg:#17331f;--bad:#ff8d85;--badbg:#3d1c1b;--warn:#f0c060;--warnbg:#3a2d10"

STYLE = (
    f".lgd{{{_LIGHT};color:var(--fg);background:var(--bg);font:13px/1.5 system-ui,sans-serif;"
    "padding:10px 14px;border-radius:8px;max-width:1000px}"
    f"@media (prefers-color-scheme:dark){{.lgd-file,.lgd-file .lgd,body:not([data-jp-theme-light]):not([data-vscode-theme-kind]) .lgd{{{_DARK}}}}}"
    f'[data-jp-theme-light="false"] .lgd,.vscode-dark .lgd,[data-theme="dark"] .lgd{{{_DARK}}}'
    ".lgd-file{margin:0;background:#fff}@media (prefers-color-scheme:dark){.lgd-file{background:#16191d}}"
    ".lgd-file .lgd{margin:24px auto}"
    ".lgd table{border-collapse:collapse;margin:2px 0;border:0}"
    ".lgd th,.lgd td{text-align:left!important;vertical-align:top;padding:2px 10px 2px 0;font-weight:400;"
    "border:0;background:none;white-space:normal;color:inherit;max-width:760px}"
    ".lgd td>table{margin:-2px 0 0}.lgd caption{caption-side:bottom;text-align:left;padding:2px 0;color:var(--dim)}"
    ".lgd tr{background:none!important}.lgd th{color:var(--dim);white-space:nowrap}"
    ".lgd code,.lgd .lines{font:12px/1.5 ui-monospace,monospace;background:none;color:inherit}"
    ".lgd .text,.lgd .lines div{white-space:pre-wrap;overflow-wrap:anywhere}"
    ".lgd .note,.lgd .when,.lgd .took,.lgd .index{color:var(--dim)}"
    ".lgd summary{cursor:pointer}.lgd summary::marker{color:var(--dim)}.lgd img{max-width:320px;max-height:240px}"
    ".lgd .step{margin-left:calc(var(--lane)*26px);border-left:2px solid var(--line)}"
    ".lgd .step.fork{border-top:2px solid var(--line);border-top-left-radius:8px}"
    ".lgd .head{display:flex;gap:8px;align-items:center;padding:3px 8px;list-style:none}"
    ".lgd .head:hover{background:var(--soft)}"
    ".lgd .index{width:34px;text-align:right;font-variant-numeric:tabular-nums}"
    ".lgd .dot{width:10px;height:10px;border-radius:50%;border:2px solid var(--main);flex:none}"
    ".lgd .latest>.head .dot{background:var(--main)}.lgd .node{font-weight:600}"
    ".lgd .when{margin-left:auto;font-variant-numeric:tabular-nums}.lgd .took{width:64px;text-align:right}"
    ".lgd .badge{font-size:11px;padding:0 7px;border-radius:9px;background:var(--soft);color:var(--dim)}"
    ".lgd .badge.waits,.lgd .badge.asked,.lgd div.asked{background:var(--warnbg);color:var(--warn)}"
    ".lgd .badge.failed,.lgd div.failed{background:var(--badbg);color:var(--bad)}"
    ".lgd div.asked,.lgd div.failed{padding:4px 8px;border-radius:6px}"
    ".lgd .body{padding:4px 12px 10px 52px}.lgd h4{margin:8px 0 2px;font-size:11px;color:var(--dim);"
    "text-transform:uppercase;letter-spacing:.06em}"
    ".lgd .new{background:var(--goodbg);color:var(--good);padding:1px 6px;border-radius:4px}"
    ".lgd .old{background:var(--badbg);color:var(--bad);padding:1px 6px;border-radius:4px}"
    ".lgd .said{display:flex;gap:10px;padding:2px 0}.lgd .who{width:56px;flex:none;color:var(--main)}"
    ".lgd .call{font:12px ui-monospace,monospace;color:var(--dim)}"
    ".lgd .pairs .apart td{background:var(--warnbg);color:var(--warn)}"
    ".lgd-plot{display:block;margin-top:22px;max-width:100%;height:auto;font:12px system-ui,sans-serif}.lgd-plot text{fill:var(--fg)}"
    ".lgd-plot .bar{fill:var(--main)}.lgd-plot .note{fill:var(--dim)}.lgd-plot .title{font-weight:600}"
)
