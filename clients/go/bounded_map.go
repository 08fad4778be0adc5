package tollgate

import "container/list"

// boundedMap is a map with a bound. Beyond it, the entry that was written first is dropped.
type boundedMap[K comparable, V any] struct {
	bound   int
	entries map[K]*list.Element
	order   list.List
}

type boundedEntry[K comparable, V any] struct {
	key   K
	value V
}

func newBoundedMap[K comparable, V any](bound int) *boundedMap[K, V] {
	return &boundedMap[K, V]{bound: bound, entries: make(map[K]*list.Element)}
}

func (m *boundedMap[K, V]) get(key K) (V, bool) {
	if element, ok := m.entries[key]; ok {
		return element.Value.(*boundedEntry[K, V]).value, true
	}
	var zero V
	return zero, false
}

// put writes an entry. An entry that is written again is the newest.
func (m *boundedMap[K, V]) put(key K, value V) {
	if element, ok := m.entries[key]; ok {
		element.Value.(*boundedEntry[K, V]).value = value
		m.order.MoveToBack(element)
		return
	}
	m.entries[key] = m.order.PushBack(&boundedEntry[K, V]{key: key, value: value})
	if len(m.entries) > m.bound {
		m.delete(m.order.Front().Value.(*boundedEntry[K, V]).key)
	}
}

func (m *boundedMap[K, V]) delete(key K) {
	if element, ok := m.entries[key]; ok {
		m.order.Remove(element)
		delete(m.entries, key)
	}
}

func (m *boundedMap[K, V]) len() int { return len(m.entries) }
