"use strict";
(() => {
  const dark = matchMedia("screen and (prefers-color-scheme: dark)");
  const finger = matchMedia("(pointer: coarse)");
  const WIDTH_OF_PAPER = 680; // A4 less its margins
  let printing = false;

  // plotly reads some markup in the text it shows.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const number = (value) => (Math.abs(value) >= 1e6 ? value.toPrecision(4) : String(Number(value.toPrecision(4))));

  function chart(section) {
    const place = section.querySelector(".chart");
    const remark = section.querySelector(".remark");
    const data = JSON.parse(section.querySelector("script").textContent);
    const control = (name) => section.querySelector(`[name=${name}]`);
    const boxes = [...section.querySelectorAll("[name=method]")];

    const shown = () => ({
      x: control("x").value,
      y: control("y").value,
      logX: control("log_x").checked,
      logY: control("log_y").checked,
    });

    /** The curve of a method without the points that a logarithm does not have. */
    function curve(index, { x, y, logX, logY }) {
      const lists = data.curves[x][y][index];
      if (lists === null) return [];
      const [xs, middle, low, high] = lists.slice(0, 4).map((list) => data.pool[list]);
      const start = logX ? data.starts[x][y] : null;
      const points = xs.map((value, i) => ({
        x: value, at: value === 0 && start ? start[0] : value, middle: middle[i], low: low[i], high: high[i],
        seeds: lists[4],
      }));
      for (const point of points) if (point.low === null || (logY && point.low <= 0)) point.low = point.high = null;
      return points.filter((point) => (!logX || point.at > 0) && (!logY || point.middle > 0));
    }

    /** Polygons, one for each stretch of points that have a band, parted by null. */
    function band(points) {
      const x = [], y = [];
      let stretch = [];
      for (const point of [...points, { high: null }]) {
        if (point.high !== null) { stretch.push(point); continue; }
        const back = [...stretch].reverse();
        if (stretch.length > 1) {
          x.push(...stretch.map((p) => p.at), ...back.map((p) => p.at), null);
          y.push(...stretch.map((p) => p.high), ...back.map((p) => p.low), null);
        }
        stretch = [];
      }
      return { x, y };
    }

    function tip(name, point, view) {
      const range = point.low === null ? "" : `, band ${number(point.low)} to ${number(point.high)}`;
      const seeds = point.seeds === 1 ? "one seed" : `median of ${point.seeds} seeds`;
      return `<b>${plain(name)}</b><br>${plain(data.words[view.y])}: ${number(point.middle)}${range}<br>` +
        `${plain(data.words[view.x])}: ${number(point.x)} (${seeds})`;
    }

    function traces(view) {
      const bands = [], lines = [];
      data.methods.forEach((name, index) => {
        const points = curve(index, view);
        const look = data.looks[index];
        const colour = dark.matches && !printing ? look.dark : look.light;
        const common = { type: "scatter", name: plain(name), visible: boxes[index].checked };
        bands.push({
          ...common, ...band(points), mode: "lines", fill: "toself", fillcolor: colour + "24", line: { width: 0 },
          hoverinfo: "skip",
        });
        lines.push({
          ...common,
          x: points.map((point) => point.at),
          y: points.map((point) => point.middle),
          // Ready-made, because a name may hold what plotly takes for a place to fill in.
          customdata: points.map((point) => tip(name, point, view)),
          hovertemplate: "%{customdata}<extra></extra>",
          mode: "lines+markers",
          line: { color: colour, width: 2, dash: look.dash.map((part) => `${part}px`).join(",") || "solid" },
          marker: { color: colour, symbol: look.marker, size: 7, maxdisplayed: 8 },
        });
      });
      return [...bands, ...lines]; // lines above all bands
    }

    function layout(view) {
      const night = dark.matches && !printing;
      const [ink, rule, paper] = night ? ["#c5ccd6", "#323a46", "#1a1f27"] : ["#3c4452", "#e3e6ea", "#ffffff"];
      const axis = (name, log) => ({
        title: { text: plain(data.words[name]), standoff: 12, font: { size: 13 } },
        type: log ? "log" : "linear",
        gridcolor: rule, linecolor: rule, zeroline: false, automargin: true, exponentformat: "power",
        separatethousands: true, tickfont: { size: 12 },
        ...(log ? { nticks: 4, tickformat: ".6~g" } : {}), // 0.5, 1, 2, 5 and not every digit
      });
      const part = view.logY ? null : data.views[view.y];
      return {
        xaxis: { ...axis(view.x, view.logX), ...begin(view) },
        yaxis: { ...axis(view.y, view.logY), ...(part ? { range: part } : {}) },
        ...(printing ? { width: WIDTH_OF_PAPER, height: 380 } : { autosize: true }),
        margin: { l: 56, r: 12, t: 12, b: 48 },
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
        hoverlabel: { bgcolor: paper, bordercolor: rule, font: { color: ink }, align: "left" },
        modebar: { bgcolor: paper, color: night ? "#7d8795" : "#98a1ae", activecolor: ink },
        hovermode: "closest", showlegend: false,
        dragmode: finger.matches ? false : "zoom", // a finger that moves scrolls the page
        uirevision: JSON.stringify(view), // a zoom lasts until the axes change
        annotations: broken(view, paper, ink),
      };
    }

    /** A sign that a logarithmic axis jumps from 0 to the first measurement. */
    function broken(view, paper, ink) {
      const start = view.logX && data.starts[view.x][view.y];
      if (!start) return [];
      const middle = (Math.log10(start[0]) + Math.log10(start[1])) / 2;
      return [{ x: middle, y: 0, yref: "paper", text: "//", showarrow: false, bgcolor: paper, borderpad: 0,
        font: { size: 12, color: ink } }];
    }

    /** Ticks of a logarithmic axis that begins at 0; plotly's own would also lie before the first measurement. */
    function ticks([left, right], [zero, first]) {
      const room = place.clientWidth < 500 ? 5 : 9;
      const between = (digits, every = 1) => {
        const found = [];
        for (let power = Math.floor(left); power <= right; power++) {
          if (power % every === 0) found.push(...digits.map((digit) => Number(`${digit}e${power}`)));
        }
        return found.filter((mark) => mark >= first && Math.log10(mark) >= left && Math.log10(mark) <= right);
      };
      const choices = [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 5], [1, 3], [1]].map((digits) => between(digits));
      const marks = choices.find((some) => some.length <= room) ?? between([1], Math.ceil((right - left) / room));
      const named = (mark) => (mark >= 1e-3 && mark < 1e6 ? mark.toLocaleString("en") : mark.toExponential());
      return { tickvals: [zero, ...marks], ticktext: ["0", ...marks.map(named)] };
    }

    /** What the horizontal axis has besides the usual if it is logarithmic and a curve begins at 0. */
    function begin(view) {
      const start = view.logX && data.starts[view.x][view.y];
      if (!start) return {};
      const xs = data.curves[view.x][view.y].flatMap((lists) => (lists ? data.pool[lists[0]] : []));
      return { tickmode: "array", ...ticks([Math.log10(start[0]), Math.log10(Math.max(...xs))], start) };
    }

    /** After a zoom, other ticks. */
    function tickAgain() {
      const view = shown();
      const start = view.logX && data.starts[view.x][view.y];
      if (!start) return;
      const { tickvals, ticktext } = ticks(place.layout.xaxis.range, start);
      if (String(tickvals) !== String(place.layout.xaxis.tickvals)) {
        Plotly.relayout(place, { "xaxis.tickvals": tickvals, "xaxis.ticktext": ticktext });
      }
    }

    function say(view) {
      const on = boxes.filter((box) => box.checked);
      const [x, y] = [data.words[view.x], data.words[view.y]];
      const names = on.map((box) => data.methods[box.value]).join(", ") || "none";
      place.setAttribute("aria-label", `Chart of ${y} against ${x}. Curves: ${names}.`);
      const top = view.logY ? Infinity : (data.views[view.y]?.[1] ?? Infinity);
      const cut = on.filter((box) => curve(box.value, view).some((point) => Math.max(point.middle, point.high) > top));
      const level = { ...view, logY: false }; // with the points that a logarithm does not have
      const lost = on.filter((box) => view.logY && curve(box.value, level).some((point) => point.middle <= 0));
      const named = (some) => some.map((box) => data.methods[box.value]).join(", ");
      remark.textContent = on.length === 0 ? "No curve is chosen." :
        lost.length > 0 ? `0 and less have no logarithm and are not drawn: ${named(lost)}.` :
        cut.length === 0 ? "" :
        `The vertical axis is cut at ${number(top)}; beyond it: ${named(cut)}. “log y” shows all.`;
    }

    let drawn = false;
    function draw() {
      const view = shown();
      Plotly.react(place, traces(view), layout(view), {
        displaylogo: false, responsive: true, displayModeBar: finger.matches ? false : "hover",
        // These and no other: there is one that would send the data to a server.
        modeBarButtons: [["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]], plotlyServerURL: "",
      });
      if (!drawn) place.on("plotly_relayout", tickAgain);
      drawn = true;
      say(view);
    }

    for (const controls of section.querySelectorAll(".controls")) controls.addEventListener("change", draw);
    for (const button of section.querySelectorAll("[data-all]")) {
      button.addEventListener("click", () => {
        for (const box of boxes) box.checked = !box.disabled && button.dataset.all !== "";
        draw();
      });
    }
    return { place, draw, redraw: () => drawn && draw() };
  }

  const charts = new Map();
  for (const section of document.querySelectorAll("section.figure")) {
    if (section.querySelector(".chart")) {
      const made = chart(section);
      charts.set(made.place, made);
    }
  }

  // Draw a chart when it comes near, ...
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      observer.unobserve(entry.target);
      charts.get(entry.target).draw();
    }
  }, { rootMargin: "600px 0px" });
  for (const place of charts.keys()) observer.observe(place);

  // ... all of them for paper, ...
  const folded = [...document.querySelectorAll(".verdicts details")];
  function paper(on) {
    if (printing === on) return;
    printing = on;
    for (const one of folded) [one.open, one.before] = on ? [true, one.open] : [one.before, undefined];
    for (const one of charts.values()) one.draw();
  }
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
  matchMedia("print").addEventListener("change", (event) => paper(event.matches));

  // ... and again when day turns to night.
  dark.addEventListener("change", () => { for (const one of charts.values()) one.redraw(); });

  // The list of contents says where the reader is; as a drawer, it closes when a section is chosen.
  const contents = document.getElementById("page-contents");
  if (contents) {
    const links = new Map([...contents.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
    const seen = new Set();
    const reading = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) seen[isIntersecting ? "add" : "delete"](target.id);
      const here = [...links.keys()].find((id) => seen.has(id));
      for (const [id, link] of links) link.ariaCurrent = id === here ? "true" : null;
    }, { rootMargin: "-20% 0px -60% 0px" });
    for (const id of links.keys()) reading.observe(document.getElementById(id));
    contents.addEventListener("click", (event) => {
      if (event.target.closest("a") && contents.matches(":popover-open")) contents.hidePopover();
    });
  }
})();
