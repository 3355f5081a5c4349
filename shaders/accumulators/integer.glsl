// The accumulator of sums and products of integers of 32 or 64 bits, modulo 2^BITS: SUM, L1, SUM_SQUARE, MULTIPLY.
// Integers of 8 and 16 bits have results of 32 bits, which are written like indices: values have the bits of an
// element.

layout(constant_id = 8) const uint POWER = 0;  // 1, 2: add powers of absolute values; 0: elements as they are
layout(constant_id = 9) const bool MULTIPLIES = false;  // multiply, do not add

#if BITS == 64
const Bits ONE = Bits(1, 0);
Bits sum_of(Bits a, Bits b)
{
    uint carry, low = uaddCarry(a.x, b.x, carry);
    return Bits(low, a.y + b.y + carry);
}
Bits product_of(Bits a, Bits b)
{
    uint low, high;
    umulExtended(a.x, b.x, high, low);
    return Bits(low, high + a.x * b.y + a.y * b.x);
}
bool is_negative(Bits a) { return int(a.y) < 0; }
#else
const Bits ONE = 1;
Bits sum_of(Bits a, Bits b) { return a + b; }
Bits product_of(Bits a, Bits b) { return a * b; }
bool is_negative(Bits a) { return int(a) < 0; }
#endif

#define Operand Bits
Operand operand_of(Bits bits)
{
#if BITS < 32
    uint extended = uint(int(bits << (32 - BITS)) >> (32 - BITS));
    bits = NUMBER_KIND == INT ? extended : bits;
#endif
    Bits opposite = sum_of(~bits, ONE);
    bool reverses = POWER == 1 && NUMBER_KIND == INT && is_negative(bits);
    Bits magnitude = reverses ? opposite : bits;
    return POWER == 2 ? product_of(bits, bits) : magnitude;
}
Operand or_neutral(Operand operand, bool is_element)
{
    Bits neutral = MULTIPLIES ? ONE : Bits(0);
    return is_element ? operand : neutral;
}

struct State {
    Bits value;
};

State identity() { return State(MULTIPLIES ? ONE : Bits(0)); }
State state_of(Operand operand, uint index) { return State(operand); }

State combine(State a, State b) { return State(MULTIPLIES ? product_of(a.value, b.value) : sum_of(a.value, b.value)); }
void accumulate(inout State state, Operand operand, uint index) { state = combine(state, State(operand)); }

Bits value_of(State state, uint count) { return state.value; }
#if BITS == 64
uint index_of(State state) { return 0; }
#else
uint index_of(State state) { return state.value; }
#endif

const uint STATE_WORDS = WORDS_PER_ELEMENT;
#define STORE_STATE(words, at, state) STORE_BITS(words, at, (state).value)
#define LOAD_STATE(state, words, at) state = State(LOAD_BITS(words, at));
