// Plots are drawn when they come near the screen, by a copy of plotly.js that is compiled with the first of them: the
// page opens without either. Narrow screens: legends move below their plots, margins and fonts shrink, and dragging
// scrolls the page instead of zooming a plot. Wide screens restore the figure's original layout.
(function () {
  const narrow = window.matchMedia("(max-width: 700px)");
  const all = (selector, of) => Array.from((of || document).querySelectorAll(selector));
  const copy = (value) => (value === undefined ? null : JSON.parse(JSON.stringify(value)));
  const authored = new Map();

  function plotly() {
    if (!window.Plotly) {
      const script = document.createElement("script");
      script.text = document.getElementById("plotly-js").textContent;
      document.head.append(script);
    }
    return window.Plotly;
  }

  const small = (plot) => ({
    legend: {orientation: "h", xref: "container", x: 0, xanchor: "left", yref: "container", y: 0, yanchor: "bottom"},
    margin: {...plot.layout.margin, l: 48, r: 8, b: 48},
    "font.size": 11,
    dragmode: false,
  });
  const fit = (plot) => plotly().relayout(plot, narrow.matches ? small(plot) : copy(authored.get(plot)));

  function draw(plot) {
    if (authored.has(plot)) return;
    const source = JSON.parse(document.getElementById(plot.id + "-data").textContent);
    const layout = source.layout;
    authored.set(plot, {legend: copy(layout.legend), margin: copy(layout.margin),
      "font.size": copy((layout.font || {}).size), dragmode: copy(layout.dragmode)});
    plotly().newPlot(plot, source.data, layout, source.config);
    if (narrow.matches) fit(plot);
  }

  const plots = all(".plot");
  const near = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
    near.unobserve(entry.target);
    draw(entry.target);
  }), {rootMargin: "500px"});
  plots.forEach((plot) => near.observe(plot));
  narrow.addEventListener("change", () => plots.filter((plot) => authored.has(plot)).forEach(fit));

  // A link to a figure, or to one of its sizes, opens it.
  const figures = all("details.figure");
  function reveal() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const figure = target && target.closest("details.figure");
    if (!figure) return;
    figure.open = true;
    target.scrollIntoView();
  }
  window.addEventListener("hashchange", reveal);
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (link && link.hash && link.hash === location.hash) reveal();  // the address does not change
  });
  reveal();
  const unfoldAll = document.getElementById("unfold");
  unfoldAll.addEventListener("click", () => {
    const open = unfoldAll.textContent === "Open all";
    figures.forEach((figure) => { figure.open = open; });
    unfoldAll.textContent = open ? "Close all" : "Open all";
  });

  // Printing draws what is shown and resizes plots to the width of the paper; folded parts are unfolded.
  const printed = () => plots.filter((plot) => (
    document.body.classList.contains("one-figure") ? plot.closest(".only") : plot.offsetParent !== null));
  window.addEventListener("beforeprint", () => {
    all("details").forEach((part) => { part.dataset.was = part.open ? "open" : ""; });
    if (!document.body.classList.contains("one-figure")) {
      all("details.figure, .evidence, .provenance").forEach((part) => { part.open = true; });
    }
    printed().forEach((plot) => { draw(plot); plotly().relayout(plot, {width: 660}); });
  });
  window.addEventListener("afterprint", () => {
    all("details").forEach((part) => { part.open = part.dataset.was === "open"; });
    document.body.classList.remove("one-figure");
    all(".only").forEach((part) => part.classList.remove("only"));
    plots.filter((plot) => authored.has(plot)).forEach((plot) => plotly().relayout(plot, {width: null, autosize: true}));
  });

  // Export of one figure: its picture, the values it shows, or the table beside it.
  function save(name, kind, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], {type: kind}));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  const quoted = (value) => (/[",\n]/.test(String(value)) ? '"' + String(value).replace(/"/g, '""') + '"' : value);
  const plain = (text) => (text || "").replace(/<[^>]*>/g, " ").trim();
  function panelOf(layout, x, y) {
    const middle = (x.domain[0] + x.domain[1]) / 2;
    const titles = layout.annotations.filter((note) => (
      note.xref === "paper" && Math.abs(note.x - middle) < 0.01 && note.y > y.domain[1] - 0.01));
    return titles.length ? plain(titles.sort((a, b) => a.y - b.y)[0].text) : "";
  }
  function values(plot) {
    const lines = ["panel,series,x,y_name,y"];
    const layout = plot._fullLayout;
    const axis = (name) => layout[name[0] + "axis" + name.slice(1)];
    const nested = (list) => list.length === 2 && Array.isArray(list[0]);  // outer and inner categories
    plot._fullData.filter((trace) => trace.xaxis && trace.yaxis).forEach((trace) => {
      const [x, y] = [axis(trace.xaxis), axis(trace.yaxis)];
      const add = (...cells) => lines.push(
        [panelOf(layout, x, y), ...cells].map((cell) => quoted(cell === undefined || cell === null ? "" : cell)).join(","));
      if (trace.z) {  // a heat map: a series per row
        const of = (list, k) => (list && list.length > k ? list[k] : k);
        const told = trace.colorbar && trace.colorbar.title ? plain(trace.colorbar.title.text) : "";
        Array.from(trace.z).forEach((cells, i) => Array.from(cells).forEach((value, j) => (
          add(of(trace.y, i), of(trace.x, j), told, value))));
        return;
      }
      const places = Array.from(trace.x || []);
      const names = nested(places) ? places[1].map((inner, k) => [places[0][k], inner].filter(Boolean).join(", ")) : places;
      names.forEach((name, k) => add(trace.name, name, plain(y.title && y.title.text), (trace.y || [])[k]));
    });
    return lines.join("\n") + "\n";
  }
  async function exported(button) {
    const {plot: id, name} = button.parentElement.dataset;
    const plot = document.getElementById(id);
    draw(plot);
    if (button.dataset.as === "svg") {
      const address = await plotly().toImage(plot, {format: "svg", width: plot.offsetWidth, height: plot.offsetHeight});
      save(name + ".svg", "image/svg+xml", decodeURIComponent(address.slice(address.indexOf(",") + 1)));
    } else if (button.dataset.as === "csv") {
      save(name + ".csv", "text/csv", values(plot));
    } else if (button.dataset.as === "tex") {
      save(name + ".tex", "application/x-tex", document.getElementById(id + "-tex").textContent);
    } else {
      document.body.classList.add("one-figure");
      for (let part = plot.closest("figure"); part; part = part.parentElement) part.classList.add("only");
      window.print();
    }
  }
  all(".export button").forEach((button) => button.addEventListener("click", () => exported(button)));

  // Filter: a figure is shown if one of its sizes has a chosen status and the chosen size.
  const form = document.querySelector(".filter");
  const field = (name) => document.getElementById(name);
  function chosen(part, statuses) {
    const kinds = part.dataset.kinds.trim().split(" ").map((kind) => kind.split("/"));
    return (!field("paper").value || part.dataset.paper === field("paper").value)
      && part.dataset.text.includes(field("words").value.trim().toLowerCase())
      && kinds.some(([status, size]) => statuses.has(status) && (!field("size").value || size === field("size").value));
  }
  function filter() {
    const statuses = new Set(all("input:checked", form).map((box) => box.value));
    all("[data-kinds]").forEach((part) => { part.hidden = !chosen(part, statuses); });
    all(".paper-head").forEach((head) => {
      const cards = all(".card", head.nextElementSibling);
      head.hidden = cards.every((card) => card.hidden);
    });
    const cards = all(".card");
    const shown = cards.filter((card) => !card.hidden).length;
    field("shown").textContent = shown === cards.length ? "" : shown + " of " + cards.length + " figures";
  }
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();  // a browser restores the fields of a page that is loaded again

  // Dark or light: as the system says, until the button is pressed.
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const button = field("theme");
  let dark = system.matches;
  function paint() {
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(dark));
  }
  button.addEventListener("click", () => { dark = !dark; paint(); });
  system.addEventListener("change", () => { dark = system.matches; paint(); });
  paint();

  const contents = field("contents-list");
  const wide = window.matchMedia("(min-width: 1500px)");
  const unfold = () => { contents.open = wide.matches; };
  wide.addEventListener("change", unfold);
  unfold();
})();
