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
      const [xs, middle, low, high, seeds] = lists.map((list) => data.pool[list]);
      const points = xs.map((at, i) => ({ x: at, middle: middle[i], low: low[i], high: high[i], seeds: seeds[i] }));
      for (const point of points) if (point.low === null || (logY && point.low <= 0)) point.low = point.high = null;
      return points.filter((point) => (!logX || point.x > 0) && (!logY || point.middle > 0));
    }

    /** Polygons, one for each stretch of points that have a band, parted by null. */
    function band(points) {
      const x = [], y = [];
      let stretch = [];
      for (const point of [...points, { high: null }]) {
        if (point.high !== null) { stretch.push(point); continue; }
        const back = [...stretch].reverse();
        if (stretch.length > 1) {
          x.push(...stretch.map((p) => p.x), ...back.map((p) => p.x), null);
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
          x: points.map((point) => point.x),
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
        xaxis: axis(view.x, view.logX),
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
      };
    }

    function say(view) {
      const on = boxes.filter((box) => box.checked);
      const [x, y] = [data.words[view.x], data.words[view.y]];
      const names = on.map((box) => data.methods[box.value]).join(", ") || "none";
      place.setAttribute("aria-label", `Chart of ${y} against ${x}. Curves: ${names}.`);
      const top = view.logY ? Infinity : (data.views[view.y]?.[1] ?? Infinity);
      const cut = on.filter((box) => curve(box.value, view).some((point) => Math.max(point.middle, point.high) > top));
      remark.textContent = on.length === 0 ? "No curve is chosen." : cut.length === 0 ? "" :
        `The vertical axis is cut at ${number(top)}; beyond it: ` +
        `${cut.map((box) => data.methods[box.value]).join(", ")}. “log y” shows all.`;
    }

    let drawn = false;
    function draw() {
      drawn = true;
      const view = shown();
      Plotly.react(place, traces(view), layout(view), {
        displaylogo: false, responsive: true, displayModeBar: finger.matches ? false : "hover",
        // These and no other: there is one that would send the data to a server.
        modeBarButtons: [["zoom2d", "pan2d"], ["zoomIn2d", "zoomOut2d", "resetScale2d"]], plotlyServerURL: "",
      });
      say(view);
    }

    section.querySelector(".controls").addEventListener("change", draw);
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
  function paper(on) {
    if (printing === on) return;
    printing = on;
    for (const one of charts.values()) one.draw();
  }
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
  matchMedia("print").addEventListener("change", (event) => paper(event.matches));

  // ... and again when day turns to night.
  dark.addEventListener("change", () => { for (const one of charts.values()) one.redraw(); });

  const variant = document.getElementById("page-variant");
  variant?.addEventListener("change", () => {
    const tally = new Map();
    for (const row of document.querySelectorAll("#page-verdict-rows tr")) {
      row.hidden = variant.value !== "" && row.dataset.variant !== variant.value;
      if (!row.hidden) tally.set(row.dataset.verdict, (tally.get(row.dataset.verdict) ?? 0) + 1);
    }
    const counts = [...tally].map(([verdict, count]) => `${verdict}: ${count}`);
    document.getElementById("page-tally").textContent = counts.join(", ");
  });
})();
