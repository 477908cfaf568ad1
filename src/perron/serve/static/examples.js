/** Example texts for each kind of model: [text] or [premise, hypothesis]. */

export const EXAMPLES = {
  text: [
    ["A quiet, funny film that trusts its actors and never raises its voice."],
    ["Not nearly as clever as it thinks it is, and twice as long as it should be."],
    ["The plot is thin, but the two leads are so charming that I hardly minded."],
  ],
  pair: [
    [
      "Two children are building a sand castle at the edge of the sea.",
      "Some children are playing outdoors.",
    ],
    [
      "A man in a red coat waits alone for the last bus.",
      "The man is sitting in his kitchen.",
    ],
    [
      "A woman tunes her violin before the concert.",
      "She is nervous about playing in public.",
    ],
  ],
  document: [
    [
      "We came for the soup and stayed all evening. The room is plain and rather loud. " +
        "But the cook knows what she is doing. Everything tasted of what it was made " +
        "of, and the bill was a pleasant surprise.",
    ],
    [
      "The hotel looks splendid in the pictures. Our room smelled of paint, and the " +
        "window did not close. Nobody answered at the desk after nine. The breakfast " +
        "was good. I would still not come back.",
    ],
  ],
};
