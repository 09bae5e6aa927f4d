// Work for several threads.
#pragma once

class Threads {
   public:
    virtual ~Threads() = default;
    virtual int count() const = 0;

    // Call `part(data, i)` for i from 0 to parts - 1, at the same time if possible, and wait for all. For one caller at a
    // time.
    virtual void run(int parts, void (*part)(void* data, int index), void* data) = 0;

    template <class Function>
    void each(int parts, Function function) {
        run(parts, [](void* data, int index) { (*static_cast<Function*>(data))(index); }, &function);
    }
};
