// The accumulator of the element with the highest index: MAX_UNPOOLING. The contract is at the top of selection.glsl.

#define Operand Bits
Operand operand_of(Bits bits) { return bits; }

struct State {
    uint number;  // 1 + the index of the element; 0: no element
    Bits bits;
};

State identity() { return State(0, Bits(0)); }
State state_of(Operand operand, uint index) { return State(index + 1, operand); }

State combine(State a, State b)
{
    bool later = b.number > a.number;
    return State(later ? b.number : a.number, later ? b.bits : a.bits);
}

Bits value_of(State state, uint count) { return state.bits; }
uint index_of(State state) { return state.number - 1; }

#if BITS == 64
const uint STATE_WORDS = 3;
#define STORE_STATE(words, at, state) \
    { \
        (words)[at] = (state).number; \
        (words)[(at) + 1] = (state).bits.x; \
        (words)[(at) + 2] = (state).bits.y; \
    }
#define LOAD_STATE(words, at) State((words)[at], uvec2((words)[(at) + 1], (words)[(at) + 2]))
#else
const uint STATE_WORDS = 2;
#define STORE_STATE(words, at, state) \
    { \
        (words)[at] = (state).number; \
        (words)[(at) + 1] = (state).bits; \
    }
#define LOAD_STATE(words, at) State((words)[at], (words)[(at) + 1])
#endif
