// ---- scatter ---------------------------------------------------------------------------------------------------------
//
// out is a copy of dest in which, for p = 0, 1, ..., element index[p] became fn(old, source[p]). Three kernels make the
// order of p hold without sorting: copy; note for every element its first and its last p; let the last p's thread
// apply all of them in order. Indices out of range are dropped.

template <class T>
LUMINAL_DEVICE void scatter_copy(T* out, Index* first, Index* last, const T* dest, Index count, Index none) {
  const UIndex i = UIndex(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < UIndex(count)) {
    out[i] = dest[i];
    first[i] = none;
    last[i] = -1;
  }
}

template <class Integer>
LUMINAL_DEVICE bool scatter_inside(Integer index, Index count) {
  return index >= Integer(0) && static_cast<uint64_t>(index) < static_cast<uint64_t>(count);
}

template <class Integer>
LUMINAL_DEVICE void scatter_note(Index* first, Index* last, const Integer* index, Index count, Index sources) {
  const UIndex p = UIndex(blockIdx.x) * blockDim.x + threadIdx.x;
  if (p < UIndex(sources) && scatter_inside(index[p], count)) {
    atomicMin(&first[index[p]], static_cast<Index>(p));
    atomicMax(&last[index[p]], static_cast<Index>(p));
  }
}

// `apply(old, source)` works on register values.
template <class T, class Integer, class Apply>
LUMINAL_DEVICE void scatter_apply(T* out, const T* dest, const Integer* index, const T* source, const Index* first,
                                  const Index* last, Index count, Index sources, Apply apply) {
  const UIndex p = UIndex(blockIdx.x) * blockDim.x + threadIdx.x;
  if (p >= UIndex(sources) || !scatter_inside(index[p], count)) return;
  const Integer place = index[p];
  if (last[place] != static_cast<Index>(p)) return;
  auto value = widen(dest[place]);
  for (Index q = first[place]; q <= static_cast<Index>(p); ++q) {
    if (index[q] == place) value = apply(value, widen(source[q]));
  }
  out[place] = convert<T>(value);
}
