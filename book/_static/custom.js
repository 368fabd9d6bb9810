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
  for (const button of document.querySelectorAll(".search-button-field")) button.removeAttribute("aria-label");
  for (const button of document.querySelectorAll(".theme-switch-button")) {
    button.removeAttribute("aria-label");
    button.insertAdjacentHTML("afterbegin", '<span class="visually-hidden">Colours: </span>');
  }
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
