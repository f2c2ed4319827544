// ---- reading operands ------------------------------------------------------------------------------------------------

// N copies of one value, what a vector of lanes reads where its view is out of range.
template <class T, int N, class Value>
LUMINAL_DEVICE Pack<T, N> filled_pack(Value value) {
  Pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack[i] = convert<T>(value);
  return pack;
}

// The index of a gather, moved into 0 .. count - 1.
template <class Integer>
LUMINAL_DEVICE Index clamped_index(Integer index, Index count) {
  if (index < Integer(0)) return 0;
  return static_cast<uint64_t>(index) < static_cast<uint64_t>(count) ? static_cast<Index>(index) : count - 1;
}
