// Draws the charts whose data are in the element "data", in the colours of page.css; again if light becomes dark.
"use strict";
(() => {
  const { runs, charts } = JSON.parse(document.getElementById("data").textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const faded = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");
  const several = runs.length > 1;
  const short = (v) => Number(v.toPrecision(4)).toLocaleString("en");

  const axis = (more) => ({
    grid: { color: colour("line"), drawTicks: false, borderColor: colour("line") },
    ticks: { color: colour("quiet"), padding: 6, maxRotation: 0, font: { size: 11 } },
    ...more,
  });
  const legend = (shown, more) => ({
    display: shown, position: "bottom", align: "start",
    labels: { color: colour("ink"), boxWidth: 14, boxHeight: 2, padding: 14, font: { size: 12 }, ...more },
  });
  const common = (more) => ({
    animation: false, responsive: true, maintainAspectRatio: false, interaction: { mode: "nearest", intersect: false }, ...more,
  });

  const makers = {
    curves(chart) {
      const datasets = chart.lines.map((line) => ({
        label: several ? runs[line.run] + (line.dashed ? ", training" : "") : line.name || chart.title,
        data: line.points.map(([x, y]) => ({ x, y })), borderColor: colour("run" + line.run), backgroundColor: colour("run" + line.run),
        borderWidth: line.dashed ? 1.25 : 2, borderDash: line.dashed ? [4, 4] : [], pointRadius: line.points.length > 40 ? 0 : 2, tension: 0,
      }));
      const seen = (item) => !several || !datasets[item.datasetIndex].borderDash.length;
      return {
        type: "line", data: { datasets },
        options: common({
          scales: {
            x: axis({ type: "linear", title: { display: true, text: "epoch", color: colour("quiet"), font: { size: 11 } }, ticks: { ...axis().ticks, precision: 0 } }),
            y: axis({ beginAtZero: chart.zero }),
          },
          plugins: { legend: legend(datasets.length > 1, { filter: seen }) },
        }),
      };
    },
    times(chart) {
      const colours = ["work", "disk", "slot", "input"].map(colour);
      return {
        type: "bar",
        data: { labels: chart.stages, datasets: chart.parts.map((part, k) => ({ label: part.name, data: part.values, backgroundColor: colours[k], barThickness: 16 })) },
        options: common({
          indexAxis: "y",
          scales: { x: axis({ stacked: true }), y: axis({ stacked: true, grid: { display: false } }) },
          plugins: { legend: legend(true, { boxHeight: 10, boxWidth: 10 }) },
        }),
      };
    },
    activity(chart) {
      const bins = chart.values.flatMap((values, row) => values.map((share, i) => ({ y: chart.rows[row], x: [i * chart.width, (i + 1) * chart.width], share })));
      return {
        type: "bar",
        data: {
          labels: chart.rows,
          datasets: [{ data: bins, grouped: false, barThickness: 18, backgroundColor: bins.map((bin) => faded(colour("work"), 0.06 + 0.94 * bin.share)) }],
        },
        options: common({
          indexAxis: "y",
          scales: {
            x: axis({ min: 0, max: chart.width * chart.values[0].length, grid: { display: false }, ticks: { ...axis().ticks, callback: (v) => short(v) + " s" } }),
            y: axis({ grid: { display: false } }),
          },
          plugins: {
            legend: legend(false),
            tooltip: { callbacks: { label: (item) => `${short(100 * item.raw.share)} % of ${short(item.raw.x[0])} to ${short(item.raw.x[1])} s` } },
          },
        }),
      };
    },
    closer(chart) {
      const shades = chart.batches.map((_, k) => faded(colour("accent"), 1 - 0.7 * k / Math.max(1, chart.batches.length - 1)));
      return {
        type: "bar",
        data: {
          labels: chart.rows,
          datasets: chart.batches.map((batch, k) => ({
            label: "batch " + batch, grouped: false, barThickness: 14, minBarLength: 1, backgroundColor: shades[k],
            data: chart.spans.filter((s) => s[1] === k).map(([row, , a, b]) => ({ y: chart.rows[row], x: [a, b] })),
          })),
        },
        options: common({
          indexAxis: "y",
          scales: { x: axis({ min: 0 }), y: axis({ grid: { display: false } }) },
          plugins: { legend: legend(true, { boxHeight: 10, boxWidth: 10 }) },
        }),
      };
    },
  };

  const draw = () => {
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    for (const chart of charts) {
      const canvas = document.getElementById(chart.id), old = Chart.getChart(canvas);
      if (old) old.destroy();
      const made = new Chart(canvas, makers[chart.kind](chart));
      canvas.dataset.drawn = made.data.datasets.reduce((n, d) => n + d.data.length, 0);
    }
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
