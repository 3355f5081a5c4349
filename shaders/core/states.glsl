// States as a first pass leaves them for combine.comp. Behind the words of a state, an average has its count: the number
// of elements of the output, in all states together.

#ifndef HAS_COUNT
#define HAS_COUNT false
#endif
const uint STORED_WORDS = STATE_WORDS + uint(HAS_COUNT);

#define STORE_WITH_COUNT(words, at, state, count) \
    { \
        STORE_STATE(words, at, state) \
        if (HAS_COUNT) \
            (words)[(at) + STATE_WORDS] = count; \
    }
