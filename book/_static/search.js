/* What the search page finds, and in which order: whole words before parts of words, pages that explain before lists, and
   for a word that the book does not have the nearest one that it has. The index and the list of stems are Sphinx's. */
{
  const ABBREVIATIONS = {
    ce: "cross-entropy", ddp: "data parallel", ema: "exponential moving average", ffn: "feed-forward network",
    fnn: "feed-forward network", gqa: "grouped queries", kv: "key-value", layernorm: "layer normalisation",
    ln: "layer normalisation", lm: "language model", lr: "learning rate", mbr: "minimum bayes risk",
    mha: "multi-head attention", mla: "latent attention", mlp: "feed-forward network", moe: "mixture experts",
    mqa: "shared keys", nmt: "translation", pe: "positional encoding", ppl: "perplexity", rnn: "recurrent network",
    rope: "rotary positions", sdpa: "dot-product attention", seq2seq: "sequence to sequence",
  };
  const LISTS = ["api", "bibliography", "glossary", "notation", "topics"].map(name => "book/" + name);
  const FURNITURE = "nav, figure, button, summary, script, style, .headerlink, .math, .goes-into, .highlight, .solution";

  const stem = word => new Stemmer().stemWord(word);
  const stems = text => splitQuery(text.toLowerCase()).map(stem);
  const files = (table, word) => (Object.hasOwn(table, word) ? [table[word]].flat() : []);
  const pages = word => [...files(Search._index.terms, word), ...files(Search._index.titleterms, word)];

  // How many letters are wrong, missing, too many or exchanged with their neighbour; anything above 2 is 3.
  function edits(a, b) {
    if (Math.abs(a.length - b.length) > 2) return 3;
    let [before, above] = [[], Array.from({length: b.length + 1}, (_, i) => i)];
    for (let i = 1; i <= a.length; i++) {
      const row = [i];
      for (let j = 1; j <= b.length; j++) {
        row[j] = Math.min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] !== b[j - 1]));
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) row[j] = Math.min(row[j], before[j - 2] + 1);
      }
      [before, above] = [above, row];
    }
    return Math.min(above[b.length], 3);
  }

  // The words of the book that are nearest to one that it does not have: most often one, two if a space is missing.
  function nearest(typed, known) {
    for (let i = 2; i < typed.length - 1; i++)
      if (known.has(typed.slice(0, i)) && known.has(typed.slice(i))) return [typed.slice(0, i), typed.slice(i)];
    const limit = typed.length < 3 ? 0 : typed.length < 5 ? 1 : 2;
    const found = [...known].map(word => ({
      word, edits: edits(typed, word) + (typed[0] === word[0] ? 0 : 0.5), pages: pages(stem(word)).length,
    })).filter(each => each.edits < limit + 1);
    found.sort((a, b) => a.edits - b.edits || b.pages - a.pages);
    return found.length ? [found[0].word] : [];
  }

  // What a query asks for: for each of its words the stems of which a page should have one, and the words to be shown.
  function understand(query) {
    const known = new Set(WORDS.split(" ").filter(word => pages(stem(word)).length));
    const asked = [];
    for (const typed of splitQuery(query.toLowerCase())) {
      if (stopwords.includes(typed)) continue;
      if (Object.hasOwn(ABBREVIATIONS, typed) && !files(Search._index.titleterms, typed).length) {
        for (const word of splitQuery(ABBREVIATIONS[typed])) asked.push({word, stems: [stem(word)]});
        continue;
      }
      const same = [typed, typed.replace(/iz(?=[aei])/, "is")].map(stem).filter(word => pages(word).length);
      const longer = typed.length < 3 ? [] : [...known].filter(word => word.startsWith(typed)).map(stem).concat(
        Object.keys(Search._index.terms).filter(term => `_${term}_`.includes(`_${typed}_`)));
      if (same.length) asked.push({word: typed, stems: same});
      else if (longer.length) asked.push({word: typed, stems: longer});
      else for (const word of nearest(typed, known)) asked.push({word, stems: [stem(word)]});
    }
    return asked;
  }

  const every = (asked, words) => asked.every(each => each.stems.some(word => words.includes(word)));

  // The pages with the most of what is asked for: a word in the page's title counts 4, in a heading 2, in its text 1.
  function findPages(asked) {
    const {docnames, filenames, titles, alltitles, titleterms} = Search._index;
    const headings = Object.entries(alltitles).flatMap(([title, places]) =>
      places.map(([file, id]) => ({file, id, title, words: stems(title)})).filter(each => every(asked, each.words)));
    const found = [];
    for (const file of docnames.keys()) {
      const title = stems(titles[file].replace(/<[^>]*>/g, " "));
      const points = asked.map(({stems}) => Math.max(...stems.map(word =>
        title.includes(word) ? 4 : files(titleterms, word).includes(file) ? 2 : pages(word).includes(file) ? 1 : 0)));
      const here = headings.filter(each => each.file === file && each.id !== null);
      const [best] = here.sort((a, b) => a.words.length - b.words.length);
      const name = docnames[file], whole = every(asked, title);
      const kind = LISTS.includes(name) ? -2 : /^book\/\d\d_/.test(name) ? 1.1 : /^book\/\d\d[a-z]_/.test(name) ? 0.8 : 0.4;
      const score = points.reduce((sum, each) => sum + each, 0) / points.length + kind
        + (whole ? 2 + asked.length / title.length : best ? 1.5 + asked.length / best.words.length : 0);
      const heading = best && !whole ? [`${titles[file]} \u203a ${best.title}`, "#" + best.id] : [titles[file], ""];
      found.push({words: points.filter(Boolean).length, item: [name, ...heading, null, score, filenames[file]]});
    }
    const most = Math.max(1, ...found.map(each => each.words));
    return found.filter(each => each.words === most).map(each => each.item);
  }

  // Entries of the glossary, and functions and classes; these come first if the query is written like a name.
  function findEntries(query, asked) {
    const {docnames, filenames, indexentries, objects, objnames} = Search._index;
    const found = [], whole = query.trim().replace(/\(\)$/, "").toLowerCase(), isName = /[_.(]|[a-z][A-Z]/.test(query);
    for (const [entry, places] of Object.entries(indexentries))
      for (const [file, id] of places)
        if (id.startsWith("term-") && every(asked, stems(entry)))
          found.push([docnames[file], entry, "#" + id, "glossary", entry === whole ? 1.9 : 1, filenames[file]]);
    for (const [prefix, members] of Object.entries(objects))
      for (const [file, type, , anchor, name] of members) {
        const full = (prefix ? prefix + "." : "") + name;
        const parts = name.split(/[._]|(?<=[a-z])(?=[A-Z])/).map(part => stem(part.toLowerCase()));
        const exact = [full.toLowerCase(), name.toLowerCase(), name.toLowerCase().split(".").pop()].includes(whole);
        const place = anchor === "" ? full : anchor === "-" ? `${objnames[type][1]}-${full}` : anchor;
        if (exact || every(asked, parts))
          found.push([docnames[file], full, "#" + place, objnames[type][2], (exact ? 1 : 0.9) + (isName ? 20 : 0), filenames[file]]);
      }
    return found;
  }

  Search.query = query => {
    const asked = understand(query), words = asked.map(each => each.word), typed = splitQuery(query.toLowerCase());
    const found = asked.length ? [...findPages(asked), ...findEntries(query, asked)] : [];
    found.sort(_orderResultsByScoreThenName);
    localStorage.setItem("sphinx_highlight_terms", words.join(" "));
    if (words.some(word => !typed.includes(word))) {
      const meant = document.createElement("p"), link = document.createElement("a");
      link.href = "?q=" + encodeURIComponent(words.join(" "));
      link.textContent = words.join(" ");
      meant.append("Showing results for ", link, ".");
      Search.output.before(meant);
    }
    const shown = asked.flatMap(each => [each.word, ...each.stems]);
    _displayNextItem(found, found.length, new Set(shown), new Set(words));
  };

  // The sentences around the first paragraph that has one of the words, without what surrounds the text of a page.
  Search.makeSearchSummary = (html, words, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    const place = (anchor && page.getElementById(anchor.slice(1))) || page.querySelector("article");
    if (!place) return null;
    const paragraphs = [...place.querySelectorAll("p, dd")].filter(each => !each.querySelector(".math") && !each.closest(FURNITURE));
    const texts = paragraphs.map(each => each.textContent.trim().replace(/\s+/g, " ")).filter(text => text.length > 40);
    const at = text => Math.min(...[...words].map(word => text.toLowerCase().indexOf(word)).filter(i => i >= 0));
    const text = texts.find(each => at(each) < Infinity) ?? texts[0] ?? "";
    const start = at(text) < 160 || at(text) === Infinity ? 0 : text.lastIndexOf(" ", at(text) - 80) + 1;
    const end = text.length < start + 240 ? text.length : text.lastIndexOf(" ", start + 240);
    const summary = document.createElement("p");
    summary.className = "context";
    summary.textContent = (start ? "… " : "") + text.slice(start, end) + (end < text.length ? " …" : "");
    return summary;
  };
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;  // there a page cannot read others
}
