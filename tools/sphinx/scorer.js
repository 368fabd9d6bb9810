/* Sphinx's own points for what the search finds, and before others the chapters themselves, the earlier first: there a
   word is explained. */
var Scorer = {
  score: ([page, , anchor, , points]) => {
    const chapter = page.match(/^book\/(\d\d)_/);
    return chapter && !anchor ? points + 1 - chapter[1] / 100 : points;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
