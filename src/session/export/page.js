(function () {
  "use strict";
  var list = Array.prototype.slice.call(document.querySelectorAll("article"));
  var byId = new Map(), newest = new Map(), rows = new Map();
  list.forEach(function (article) {
    byId.set(article.id, article);
    if (article.dataset.parent) newest.set(article.dataset.parent, article.id);
  });
  document.querySelectorAll("nav a").forEach(function (row) { rows.set(row.hash.slice(1), row); });
  var nav = document.getElementById("tree"), menu = document.getElementById("menu");
  var bar = document.querySelector(".bar"), root = document.documentElement;
  function measure() { root.style.setProperty("--bar", bar.offsetHeight + "px"); }
  window.addEventListener("resize", measure);
  measure();

  // Shows the branch that runs through an entry: up to its root, and down along the newest children.
  function showBranch(id) {
    var on = new Set(), up = id;
    while (up && byId.has(up) && !on.has(up)) { on.add(up); up = byId.get(up).dataset.parent; }
    var down = newest.get(id);
    while (down && !on.has(down)) { on.add(down); down = newest.get(down); }
    list.forEach(function (article) { article.hidden = !on.has(article.id); });
    rows.forEach(function (row, key) { row.classList.toggle("on", on.has(key)); });
  }

  var here = nav.querySelector("a.here");
  // One stop for the tab key in the whole tree; arrow keys walk through its rows.
  rows.forEach(function (row) { row.tabIndex = -1; });
  var stop = here || nav.querySelector("a");
  function stopAt(row) {
    if (stop) stop.tabIndex = -1;
    stop = row;
    if (stop) stop.tabIndex = 0;
  }
  stopAt(stop);
  nav.addEventListener("keydown", function (event) {
    var row = event.target, to = null;
    if (event.key === "ArrowDown") to = row.nextElementSibling;
    else if (event.key === "ArrowUp") to = row.previousElementSibling;
    else if (event.key === "Home") to = nav.firstElementChild;
    else if (event.key === "End") to = nav.lastElementChild;
    if (!to || !to.hash) return;
    event.preventDefault();
    stopAt(to);
    to.focus();
  });

  function go(id) {
    var article = byId.get(id);
    if (!article) return;
    if (article.hidden) showBranch(id);
    if (here) here.classList.remove("here");
    here = rows.get(id) || null;
    if (here) { here.classList.add("here"); here.scrollIntoView({ block: "nearest" }); stopAt(here); }
    article.scrollIntoView({ block: "start" });
    // Articles far away have no size until they are drawn; a second step lands exactly.
    requestAnimationFrame(function () { article.scrollIntoView({ block: "start" }); });
  }

  function closeMenu() { nav.classList.remove("open"); menu.setAttribute("aria-expanded", "false"); }
  menu.addEventListener("click", function () {
    var open = nav.classList.toggle("open");
    menu.setAttribute("aria-expanded", String(open));
  });
  document.addEventListener("click", function (event) {
    var link = event.target.closest ? event.target.closest("a") : null;
    if (!nav.contains(event.target) && !menu.contains(event.target)) closeMenu();
    if (!link || link.origin !== location.origin || !/^#e\d+$/.test(link.hash)) return;
    if (link.getAttribute("href").charAt(0) !== "#") return;
    event.preventDefault();
    history.replaceState(null, "", link.hash);
    go(link.hash.slice(1));
    closeMenu();
  });
  window.addEventListener("hashchange", function () { go(location.hash.slice(1)); });

  var query = document.getElementById("query"), count = document.getElementById("count");
  var texts = null, hits = [], at = -1;
  function search() {
    var words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    hits.forEach(function (article) { article.classList.remove("found"); });
    hits = []; at = -1;
    if (words.length) {
      if (!texts) texts = list.map(function (article) { return article.textContent.toLowerCase(); });
      hits = list.filter(function (_, index) {
        return words.every(function (word) { return texts[index].indexOf(word) >= 0; });
      });
    }
    count.textContent = words.length ? hits.length + " found" : "";
  }
  function step(by) {
    if (!hits.length) return;
    if (at >= 0) hits[at].classList.remove("found");
    at = (at + by + hits.length) % hits.length;
    var article = hits[at], words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    article.querySelectorAll("details").forEach(function (part) {
      var text = part.textContent.toLowerCase();
      if (words.some(function (word) { return text.indexOf(word) >= 0; })) part.open = true;
    });
    article.classList.add("found");
    count.textContent = (at + 1) + " of " + hits.length;
    go(article.id);
  }
  var waiting = 0;
  query.addEventListener("input", function () { clearTimeout(waiting); waiting = setTimeout(search, 120); });
  query.addEventListener("keydown", function (event) {
    if (event.key === "Enter") { clearTimeout(waiting); if (!hits.length) search(); step(event.shiftKey ? -1 : 1); event.preventDefault(); }
    if (event.key === "Escape") { query.value = ""; search(); query.blur(); }
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "/" && document.activeElement !== query) { query.focus(); event.preventDefault(); }
    if (event.key === "Escape") closeMenu();
  });

  var tools = document.getElementById("tools");
  var open = false;
  tools.addEventListener("click", function () {
    open = !open;
    tools.textContent = open ? "Fold tools" : "Open tools";
    document.querySelectorAll("details.tool").forEach(function (part) { part.open = open; });
  });
  var theme = document.getElementById("theme"), themes = ["auto", "light", "dark"], chosen = 0;
  theme.addEventListener("click", function () {
    chosen = (chosen + 1) % themes.length;
    theme.textContent = "Theme: " + themes[chosen];
    if (chosen) document.documentElement.dataset.theme = themes[chosen];
    else delete document.documentElement.dataset.theme;
  });

  if (location.hash) go(location.hash.slice(1));
})();
