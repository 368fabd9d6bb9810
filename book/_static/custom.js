/* Names for what the theme leaves without one, or gives a name that is not the text that one sees. */
document.addEventListener("DOMContentLoaded", () => {
  // On a phone each row of a wide table becomes a block, in which each cell has its column's name.
  for (const table of document.querySelectorAll(".gallery table")) {
    const names = [...table.querySelectorAll("thead th")].map((name) => name.textContent);
    for (const cell of table.querySelectorAll("td")) cell.dataset.label = names[cell.cellIndex];
    table.classList.add("cards");
  }
  for (const summary of document.querySelectorAll(".bd-sidenav summary"))
    summary.setAttribute("aria-label", "Pages under " + summary.closest("li").querySelector("a").textContent.trim());
  // A long name breaks after a dot, an underscore or a bracket, and not within a word.
  for (const code of document.querySelectorAll(".bd-article :is(p, li, td, dd) code")) {
    const texts = [], walker = document.createTreeWalker(code, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) if (walker.currentNode.length > 13) texts.push(walker.currentNode);
    for (const text of texts) {
      const parts = text.data.split(/(?<=[._(,/=])(?=[^\s)])/);
      text.replaceWith(...parts.flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
    }
  }
  for (const option of document.querySelectorAll(".bd-article code .pre"))  // not after its hyphens
    if (option.textContent.startsWith("-")) option.style.whiteSpace = "nowrap";
  // A link in a solution's title leads to the exercise alone; the theme's script would turn over the solution that was
  // clicked before, or fail.
  for (const link of document.querySelectorAll(".solution > .admonition-title a"))
    link.addEventListener("click", (event) => event.stopPropagation());
  for (const button of document.querySelectorAll(".search-button-field")) button.removeAttribute("aria-label");
  for (const button of document.querySelectorAll(".theme-switch-button")) {
    button.removeAttribute("aria-label");
    button.insertAdjacentHTML("afterbegin", '<span class="visually-hidden">Colours: </span>');
  }
});

// A picture that is shown smaller than it was drawn, or in rows of its panels, has a button: it then opens as it was
// drawn, in a window that scrolls.
document.addEventListener("DOMContentLoaded", () => {
  function enlarge(picture, name) {
    const whole = picture.cloneNode(true), dialog = document.createElement("dialog");
    dialog.className = "enlarged";
    dialog.setAttribute("aria-label", name);
    dialog.innerHTML = '<form method="dialog"><button>Close</button></form><div class="scrolls" tabindex="0"></div>';
    dialog.lastElementChild.append(whole);
    dialog.addEventListener("click", ({ target }) => target === dialog && dialog.close());
    dialog.addEventListener("close", () => dialog.remove());
    picture.closest("figure, .output, div").append(dialog);
    dialog.showModal();
  }
  for (const picture of document.querySelectorAll(".bd-article :is(figure img:not(.ride img), .cell_output img, svg.drawing)")) {
    const number = picture.closest("figure")?.querySelector(".caption-number")?.textContent.trim();
    const name = number ?? "the picture", button = document.createElement("button");
    Object.assign(button, { type: "button", className: "enlarge", textContent: `Enlarge ${name}`, hidden: true });
    (picture.closest("picture, a") ?? picture).after(button);
    const open = () => enlarge(picture, number ?? picture.alt ?? picture.getAttribute("aria-label"));
    button.addEventListener("click", open);
    picture.addEventListener("click", ({ target }) => button.hidden || target.closest("a") || open());
    new ResizeObserver(() => {
      const width = picture.naturalWidth ?? picture.width.baseVal.value;
      button.hidden = picture.clientWidth > 0.8 * width && [undefined, picture.src].includes(picture.currentSrc);
    }).observe(picture);
  }
});

// On a phone a chapter begins with its first words: the map is folded.
document.addEventListener("DOMContentLoaded", () => {
  for (const map of document.querySelectorAll(".you-are-here")) map.open = !matchMedia("(max-width: 720px)").matches;
});

/* Paper is white: a page that is dark on the screen is printed as a light one. */
{
  const page = document.documentElement.dataset;
  let theme;
  const paper = () => {
    theme ??= page.theme;
    page.theme = "light";
  };
  const screen = () => {
    page.theme = theme ?? page.theme;
    theme = undefined;
  };
  addEventListener("beforeprint", paper);
  addEventListener("afterprint", screen);
  const print = matchMedia("print"); // some browsers tell it this way, and later
  print.addEventListener("change", () => (print.matches ? paper() : screen()));
}
