// A second accumulator, for tests: the sum of unsigned 32-bit elements, modulo
// 2^32. It forgives nothing: an element that is left out, or taken twice,
// shows.

struct State {
  uint sum;
};

#define Operand uint
Operand operand_of(Bits bits) { return bits; }
Operand or_neutral(Operand operand, bool is_element) {
  return is_element ? operand : 0;
}
Operand divided(Operand operand, uint by) { return operand / by; }

State identity() { return State(0); }
State empty_from(uint index) { return identity(); }
State state_of(Operand operand, uint index) { return State(operand); }

const bool REPEATABLE = false;
void accumulate(inout State state, Operand operand, uint index) {
  state.sum += operand;
}
State combine(State a, State b) { return State(a.sum + b.sum); }
State combine_one(State a, State b) { return combine(a, b); }
State appended(State a, State b) { return combine(a, b); }

Bits value_of(State state, uint count) {
  return state.sum + count;
} // so that a wrong count shows, too
uint index_of(State state) { return 0; }
#define RELOAD_BITS(state, element)

#define HAS_COUNT true
const uint STATE_WORDS = 1;
#define STORE_STATE(words, at, state) (words)[at] = (state).sum;
#define LOAD_STATE(state, words, at) state = State((words)[at]);
